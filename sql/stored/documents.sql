-- documents: the documents of the knowledge base and their paths.
-- columns: doc_id, path
-- kind: table
-- variants: none, if the table is missing or empty
-- shown: yes
SELECT
    shown_text(CAST(doc_id AS VARCHAR))         AS doc_id,
    shown_text(CAST(workspace_path AS VARCHAR)) AS path
FROM stored_documents
