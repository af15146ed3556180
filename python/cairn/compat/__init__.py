"""Other systems' ways of starting and writing a job, for scripts that come from there.

    from cairn.compat import mindspore     MindSpore's parameter server: docs/guide/migrating/mindspore.md
    from cairn.compat import fleet         Paddle's fleet: docs/guide/migrating/paddle.md
    import cairn.compat.accelerate         Hugging Face's accelerate and Trainer: docs/guide/pytorch.md

Nothing here is imported by `import cairn`.
"""
