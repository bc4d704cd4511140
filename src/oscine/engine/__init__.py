"""One engine for all families: it batches sequences of callers who know nothing of each other.

A *sequence* is what a row of a batch computes: a window at one temperature, a chunk of audio, an
utterance. A *request* (a recording, a text, a live stream) is a generator that yields sequences
and receives their results. A family's *runner* tells the engine how sequences are admitted, which
recorded plan is a step of N rows, and what a poll of the state means.

Source: iteration-level scheduling of Orca (OSDI 2022), the scheduler and encoder cache of vLLM.
"""
