"""Run folders: one folder is one model.

    RUN/config.json         format version, model, training settings, data, metrics of the best evaluation
    RUN/tokenizer.json      Hugging Face tokenizers format
    RUN/model.safetensors   the best weights so far
    RUN/state/              what `--resume` needs: the ids of the text, and the last two training states
    RUN/metrics.jsonl       one JSON object per event
    RUN/samples.txt         what the model wrote at each validation
    RUN/loss.png            the curves

The first three are the model; the rest may be deleted when a run is over. Files are written atomically. Nothing is
unpickled.

    folder.py      RunFolder: the files of one folder, its lock, and what to do when the disk refuses
    config.py      config.json: written, checked, read
    state.py       training states: written, verified, renamed into place, pruned
    logs.py        metrics.jsonl and samples.txt: added to, cut back on resume, read
    weights.py     the tensors of a model by name, and model.safetensors
    load.py        load and save: run folders, and folders of Hugging Face
"""
