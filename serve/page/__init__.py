"""The page: server-rendered views of the API's answers, with a little script on top."""
