"""What a process of a job is and how it becomes one: cairn.init(), launchers and hosting, the other roles,
how a process ends, what a Ctrl-C leaves, warnings that name the user's line. Knows no tables."""
