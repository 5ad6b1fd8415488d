"""Run folders: a trained model with its tokenizer, training states and logs.

    RUN/config.json         format version, model, training settings, data, metrics of the best evaluation
    RUN/tokenizer.json      Hugging Face tokenizers format
    RUN/model.safetensors   the best parameters so far
    RUN/state/              for `--resume`: the ids of the text, and the last two training states
    RUN/metrics.jsonl       one JSON object per event
    RUN/samples.txt         a generated text for each validation
    RUN/loss.png            the loss curves

The first three are the model; the others can be deleted after the run. Files are written atomically. No file is a
pickle.

    folder.py      RunFolder: the files of one folder, its lock, and errors of the file system
    config.py      config.json: reading, checks, writing
    checkpoints.py training states: writing, verification, removal of old ones
    stored.py      the tensors of a state that several processes write and read
    logs.py        metrics.jsonl and samples.txt: appending, truncation on resume, reading
    parameters.py  the tensors of a model by name, and model.safetensors
    integrity.py   the SHA-256 of model.safetensors: how it is replaced, and the check when it is read
    examine.py     what loading and resuming check, for `jumok doctor`
    load.py        load and save: run folders, and Hugging Face folders
    native.py      load for the C++ step, without torch
"""
