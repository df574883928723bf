"""The training loop and everything around it that method files do not need to mention.

A fit reads downwards: `estimator.fit` builds restarts, `loop.train` runs them epoch by epoch, a step is `Phase.step`::

    model.py            the interface of a method: loss, assignment, and hooks around a step
    placing.py          initial centres
    pretraining.py      pretraining tasks, also used next to the method's own loss
    rows.py             access to samples in memory, on disk, in a sparse matrix or in a torch Dataset
    data.py             samples as methods see them: floating point, on the device, in batches
    feed.py             the training batches, shuffled every epoch
    phase.py            one phase of training: start, epochs of steps, finish
    last_finite.py      the last finite state, restored if the loss is not finite
    overclustering.py   a phase with extra clusters, which are merged at its end
    restart.py          one run of a fit: its phases, random numbers and checkpoint entry
    loop.py             train(): runs restarts to their results
    run.py              a finished restart and its label-free measurements
    checkpoint.py       the state of a fit in a folder, to resume exactly after a kill
    disk.py             atomic writes, safe reads, folder locks
    guard.py            goes back if clusters empty while the loss falls
    distributed.py      several processes that share a fit
    runtime.py          device, precision, scoped random numbers
    threads.py          one CPU thread for short steps
    optimizers.py       the optimisers by name
    accelerate/         steps as CUDA graphs, runs stacked into one, fused kernels

Terms::

    restart         one run of a fit with its own seed; of `n_init` restarts one is kept
    run             a finished restart, measured on all rows: its labels, centres and label-free scores
    phase           a part of a restart with one loss: pretraining, clustering
    graph_key       the non-tensor values that a step depends on; each value gets its own CUDA graph
    stack_key       models with the same key differ only in tensor values, so `torch.vmap` can train them together
    frozen_parts    names of the parts of a model that a step does not change
    knowledge       what the user knows about some rows: their class, or links between two of them
    origin          offset subtracted in float64 from columns far from zero, before rows become float32
    event           something the user should know about a run: a repair, a collapse, an interruption
"""
