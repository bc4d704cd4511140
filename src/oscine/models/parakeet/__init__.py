"""Parakeet: FastConformer encoders with TDT, RNN-T and CTC heads."""
