"""What tables of both kinds need on this side: their settings (optimizers, wire formats, weights), and the
memory of the tensors that the extension reads and writes."""
