"""Zero-shot voice cloning with CosyVoice2 and Fun-CosyVoice3."""
