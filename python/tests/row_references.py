"""Optimizers of rows as their papers have them, in NumPy and float32: what others are compared
with."""
import numpy as np

F32 = np.float32


def rowwise_adagrad_row(row, grad, total, lr, eps):
    """The new row and accumulator."""
    total = F32(total + np.mean(np.square(grad), dtype=F32))
    return row - F32(lr) * grad / (np.sqrt(total) + F32(eps)), total


def ftrl_row(row, grad, z, n, *, lr, beta, l1, l2):
    """The new row, z and n (McMahan et al. 2013, algorithm 1: α is lr)."""
    sigma = (np.sqrt(n + grad * grad) - np.sqrt(n)) / F32(lr)
    z = z + grad - sigma * row
    n = n + grad * grad
    rate = (F32(beta) + np.sqrt(n)) / F32(lr) + F32(l2)
    return np.where(np.abs(z) <= F32(l1), F32(
        0), -(z - np.sign(z) * F32(l1)) / rate).astype(F32), z, n
