"""Every command's module, imported for its registration."""

from roofcalc.cli import attention, decode, design, fuse, lookup, models, step, validate, verify  # noqa: F401
