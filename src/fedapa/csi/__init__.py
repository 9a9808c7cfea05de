"""What a receiver recorded, as frozen captures."""
