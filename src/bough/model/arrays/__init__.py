"""Arrays and the spans that they are sent in.

It offers their indexes as the submitter wrote them (`array_indices`), `ranges` of indexes, what each element reads
(`element_reads`), parts of their results (`result_lists`), and how many elements a span holds (`runtimes`,
`dispatch_tuning`).
"""
