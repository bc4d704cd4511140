"""Qwen3-TTS: text to speech, the 12 Hz family; numbers and quirks in MODELS/qwen3_tts.md."""
