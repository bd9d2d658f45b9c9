"""Recurrent layers fused over time: LSTM, GRU, sLSTM and Elman, forward and backward."""
