"""Keras 3's `fit`, recorded by a callback; on whatever backend there is.

python examples/frameworks/keras_fit.py FOLDER
"""

import sys

import keras
import numpy

import barograph
from barograph.integrations.keras import KerasCallback

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
inputs, outputs = numpy.ones((16, 4)), numpy.ones((16, 1))
callback = KerasCallback(project="keras", dir=sys.argv[1])
more = {"validation_data": (inputs, outputs), "verbose": 0, "callbacks": [callback]}
model.fit(inputs, outputs, batch_size=4, epochs=3, **more)

stored = barograph.StoredRun(callback.run.dir)
assert list(stored.series("train/loss").step) == list(range(12))
assert list(stored.series("eval/loss").step) == [3, 7, 11]
print("a training of Keras holds")
