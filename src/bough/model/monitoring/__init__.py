"""What watches running tasks and compares them, and what was seen of them.

It offers `monitors` and `population_rules`, each with its form in one line of text (`monitor_text`, `rule_text`), and
`observations`.
"""
