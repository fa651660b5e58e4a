"""The fault campaign: the product is hurt at random, and every promise is asked for afterwards.

``plan`` says what is done, by a seed alone; ``house`` runs everything twice behind links that can be cut; ``faults`` hurts
it; ``actors`` use it and note in a ``history`` what they were told; ``checkers`` compare that with what is there at the end.
Rounds are kept in a ``journal``, so that a campaign goes on where it was, and a ``report`` tells the figures.
"""
