"""`oscine serve`: an HTTP server with OpenAI's audio API, on the engine and the options.

It knows no family of models: requests are read against the records of the options, and the models
refuse what they do not support. Its parts are `front`, which every request passes, `app`, which has
the routes, `gate`, which runs their work in threads, and `catalog`, which has the models. It is
imported by the command only, as it needs the packages of the extra `server`.
"""
