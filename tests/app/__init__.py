"""How a broker process is built."""
