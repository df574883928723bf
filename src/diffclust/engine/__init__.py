"""The only training loop, and everything a method file must never mention.

A fit reads downwards: `estimator.fit` builds restarts, `loop.train` runs them epoch by epoch, a step is `Phase.step`::

    model.py        what a method says: a loss, an assignment, and hooks around a step
    placing.py      where the centres begin
    pretraining.py  what the network learns from before the method's own loss, or beside it
    rows.py         samples where they are: in memory, on a disk, in a sparse matrix, in a torch Dataset
    data.py         the same as the methods see them: floating point, on the device, a batch at a time
    feed.py         the batches of training, drawn anew every epoch
    phase.py        one phase of training: start, epochs of steps, finish
    last_finite.py  the state that a run goes back to when its loss is not finite
    wide.py         one with more clusters than are wanted, joined at its end
    restart.py      one run of a fit: its phases, its random numbers, its entry in the checkpoint
    loop.py         train(): restarts to their results
    run.py          a finished restart, measured without labels
    checkpoint.py   the state of a fit in a folder, so that a killed one goes on exactly
    disk.py         files written whole, read safely, and folders for one at a time
    guard.py        against clusters that die while the loss falls
    distributed.py  several processes that share a fit
    runtime.py      device, precision, borrowed random numbers
    optimizers.py   the optimisers by name
    accelerate/     steps as CUDA graphs, runs stacked into one, fused kernels

Words of our own::

    restart         a run of a fit from a seed of its own; `n_init` of them, of which one is kept
    phase           a part of a restart with one loss: pretraining, clustering
    graph_key       whatever a step depends on beside tensors; each value gets a CUDA graph of its own
    stack_key       models of one key differ in numbers alone, so that `torch.vmap` can take their steps together
    resting         parts of a model that a step does not move, by name
    told            of a row: what the user knows of it, a class or a link to another row
    origin          what is subtracted from columns far from zero, in float64, before rows become float32
    event           something the user should know about a run: a repair, a collapse, an interruption
"""
