"""The only training loop, and everything a method file must never mention."""
