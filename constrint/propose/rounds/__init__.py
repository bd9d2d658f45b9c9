"""Rounds: who proposes is asked, what is proposed goes through the gates, and what came of it is told and kept."""
