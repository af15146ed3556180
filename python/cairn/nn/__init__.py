"""Modules whose rows are on the servers: Embedding and EmbeddingBag as torch's, and many of them in
one round trip. docs/guide/embedding.md is their page."""
from .collection import EmbeddingCollection
from .embedding import Embedding
from .embedding_bag import EmbeddingBag

__all__ = ["Embedding", "EmbeddingBag", "EmbeddingCollection"]
