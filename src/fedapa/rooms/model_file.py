"""A room's finished net on disk: one safetensors file that counts people, with or without torch.

::

    tensors    the net's own arrays, by the names of ``state_dict``
               normaliser.mean, normaliser.deviation [subcarriers]
               prototypes [C, D], prototypes.windows [C]: how many windows each is the mean of
               graph: the net as bytes of an ONNX model, without its weights
    metadata   the single key ``fedapa`` (with more, equal models would have unequal bytes): JSON
               with room, architecture, classes, answer, temperature, reach, recipe, window shape,
               whether it learned from simulated windows, and, where the net has a second task,
               ``further``: its classes, whose rows follow in the classifier and in prototypes, and
               temperature

``load_model`` runs the graph by onnxruntime and needs no torch.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors import numpy as safetensors_numpy

from fedapa.adaptation import Trained
from fedapa.answers import Answer, expected_count, median_class, probabilities_of
from fedapa.errors import DataError, FedapaError, PlanError, nearest, one_line
from fedapa.files import write_bytes
from fedapa.models.onnx_bytes import wanted_weights
from fedapa.payload import Array
from fedapa.rooms.task import ACTIVITY
from fedapa.windows.labels import Label
from fedapa.windows.normalise import Normaliser
from fedapa.windows.recipe import Recipe
from fedapa.windows.stream import window_shape

if TYPE_CHECKING:  # counting must not load torch
    from fedapa.models.model import Model
    from fedapa.rooms.room import Room

__all__ = [
    "CountingModel",
    "find_model",
    "load_model",
    "prototype_distances",
    "read_parts",
    "read_recipe",
    "read_weights",
    "save_model",
]

_FORMAT = 4
_MEAN, _DEVIATION = "normaliser.mean", "normaliser.deviation"
_PROTOTYPES, _MEMBERS = "prototypes", "prototypes.windows"
_GRAPH = "graph"
_WEIGHT, _BIAS = "classifier.weight", "classifier.bias"
_BESIDE = frozenset({_MEAN, _DEVIATION, _PROTOTYPES, _MEMBERS, _GRAPH})
"""What is in the file beside the net's own arrays."""
_TYPES = ("F32", "I64", "U8")
"""Of the arrays in the file, as safetensors calls them."""

_Floats = npt.NDArray[np.float32]


def save_model(
    path: Path,
    room: "Room",
    model: "Model",
    prototypes: Array,
    members: Array,
    temperature: float = 1.0,
    further_temperatures: Sequence[float] = (),
    reach: float = 0.0,
) -> None:
    """Write a net as one file that needs nothing else to be used.

    Args:
        path: where to.
        room: the room that the net is for.
        model: what it deploys.
        prototypes: [C, D] the mean embedding of its train windows by class (eqn_4), of all tasks.
        members: [C] of how many windows; 0 where the room has none.
        temperature: what its scores are divided by before they are probabilities.
        further_temperatures: the same in each task beside the first.
        reach: how far from the nearest prototype the room's own windows lie; 0: nobody knows.
    """
    from fedapa.models.graph import graph_of

    shape = room.windows.shape[1:]
    tensors: dict[str, Array] = {
        name: value.detach().cpu().numpy() for name, value in model.state_dict().items()
    }
    tensors[_MEAN] = room.normaliser.mean
    tensors[_DEVIATION] = room.normaliser.deviation
    tensors[_PROTOTYPES] = np.asarray(prototypes, np.float32)
    tensors[_MEMBERS] = np.asarray(members, np.int64)
    tensors[_GRAPH] = np.frombuffer(graph_of(model, shape), np.uint8)
    about: dict[str, Any] = {
        "format": _FORMAT,
        "room": room.name,
        "architecture": model.architecture,
        "width": model.width,
        "normalise_embedding": model.normalise_embedding,
        "classes": list(room.classes),
        "answer": room.answer,
        "temperature": temperature,
        "reach": reach,
        "recipe": room.recipe.document(),
        "window_shape": list(shape),
        "train_windows": len(room.split.train),
        "days": list(room.days),
        "synthetic": room.synthetic,
    }
    if room.further:
        about["further"] = {
            task.name: {"classes": list(task.classes), "temperature": own}
            for task, own in zip(room.further, further_temperatures, strict=True)
        }
    contiguous = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    about["digest"] = _digest(contiguous)
    content = safetensors_numpy.save(
        contiguous, metadata={"fedapa": json.dumps(about, sort_keys=True)}
    )
    write_bytes(path, content)


def prototype_distances(
    embeddings: npt.ArrayLike, prototypes: npt.ArrayLike, present: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """[B] how far embeddings [B, D] are from the nearest of prototypes [C, D] that are present."""
    points = np.asarray(embeddings, np.float64)
    nearest = np.full(len(points), np.inf)
    for mean in np.asarray(prototypes, np.float64)[present]:  # (B, present, D) at once is gigabytes
        np.minimum(nearest, np.sqrt(np.square(points - mean).sum(axis=1)), out=nearest)
    return nearest


def _digest(arrays: Mapping[str, Array]) -> str:
    """Of every value in the file: a bit that fell over would count other people."""
    content = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        content.update(name.encode())
        content.update(arrays[name].tobytes())
    return content.hexdigest()


def read_weights(path: Path) -> dict[str, Array]:
    """The arrays of the net alone, by the names of ``state_dict``."""
    _, arrays = read_parts(path)
    return {name: value for name, value in arrays.items() if name not in _BESIDE}


def read_recipe(path: Path) -> Recipe:
    """How the windows that a net counts are made; the net itself is not built."""
    about, arrays = read_parts(path)
    try:
        normaliser = Normaliser(arrays[_MEAN], arrays[_DEVIATION])
        return Recipe.of_document(about["recipe"], place=str(path), normaliser=normaliser)
    except KeyError as error:
        raise DataError(f"{path}: {error} is missing; not a whole model, make it again") from error


@dataclass(frozen=True, eq=False)
class CountingModel:
    """A room's net that counts people in windows as its recipe makes them; needs no torch."""

    room: str
    classes: tuple[Label, ...]
    """What it tells apart: numbers of people, or categories."""
    recipe: Recipe
    """How its windows are made: ``Windower(model.recipe)``."""
    window_shape: tuple[int, ...]
    """(packets, subcarriers) or (features,) of one window."""
    answer: Answer
    """How it answers: by the most probable class (head, nearest), the median or the mean."""
    temperature: float
    """What scores are divided by, so that probabilities are true: fitted on validation windows."""
    synthetic: bool
    """Whether it learned from simulated windows."""
    days: tuple[str, ...]
    """Of its train windows; none where nobody noted them."""
    prototypes: _Floats
    """[C, D] the mean embedding of the room's train windows by class; zero where it has none."""
    present: npt.NDArray[np.bool_]
    """[C] which classes it has train windows of."""
    classifier: tuple[_Floats, _Floats]
    """[C, D] and [C]: what makes logits of an embedding, W·z + b."""
    reach: float
    """How far from the nearest prototype 99 % of the room's validation windows lie at most (of its
    train windows where it has no others); 0 where nobody knows."""
    _session: Any
    activities: tuple[str, ...] = ()
    """What else it tells, where its net has a second task; mostly nothing."""
    activity_temperature: float = 1.0

    @property
    def trained(self) -> Trained:
        """What a counter that follows its room begins with, see ``fedapa.adaptation``."""
        normaliser = self.recipe.normaliser
        assert normaliser is not None  # every model file has one
        empty = self.classes.index(0) if 0 in self.classes else None
        return Trained(
            mean=normaliser.mean.astype(np.float64),
            deviation=normaliser.deviation.astype(np.float64),
            prototypes=self.prototypes.astype(np.float64),
            present=self.present,
            weight=self.classifier[0].astype(np.float64),
            bias=self.classifier[1].astype(np.float64),
            temperature=self.temperature,
            empty=empty if empty is not None and self.present[empty] else None,
        )

    def probabilities(
        self, windows: npt.ArrayLike, task: Literal["label", "activity"] = "label"
    ) -> _Floats:
        """[B, C] how probable each class is; ``windows`` are [B, …] as the recipe makes them.

        ``task`` "activity": how probable each of ``activities`` is.
        """
        first = len(self.classes)
        if task == ACTIVITY:
            self._refuse_without_activities()
            logits, temperature = self._run(windows)[0][:, first:], self.activity_temperature
        else:
            logits, temperature = self._run(windows)[0][:, :first], self.temperature
        return probabilities_of(logits, temperature).astype(np.float32)

    def activity(self, windows: npt.ArrayLike) -> npt.NDArray[np.str_]:
        """[B] what the people in each window do, where the net has that task."""
        best = self.probabilities(windows, "activity").argmax(axis=1)
        return np.asarray([self.activities[place] for place in best], np.str_)

    def _refuse_without_activities(self) -> None:
        if not self.activities:
            raise DataError(
                f"the model of room '{self.room}' tells no activity; train one with data.tasks = "
                "'both', on recordings that have one"
            )

    def look(self, windows: npt.ArrayLike) -> tuple[_Floats, npt.NDArray[np.float64], _Floats]:
        """As ``probabilities``, distances [B] from the nearest prototype, as ``embed``, at once."""
        logits, embeddings = self._run(windows)
        counts = logits[:, : len(self.classes)]
        probabilities = probabilities_of(counts, self.temperature).astype(np.float32)
        distances = prototype_distances(embeddings, self.prototypes, self.present)
        return probabilities, distances, embeddings

    def count(self, windows: npt.ArrayLike) -> npt.NDArray[Any]:
        """[B] the people in each window, or its category, as ``answer`` says."""
        probabilities, people = self.probabilities(windows), np.asarray(self.classes)
        if self.answer == "expected" and people.dtype.kind == "i":
            return expected_count(probabilities, people.tolist())
        if self.answer == "median" and people.dtype.kind == "i":
            best = median_class(probabilities, people.tolist())
        else:
            best = probabilities.argmax(axis=1)
        answers: npt.NDArray[Any] = people[best]
        return answers

    def embed(self, windows: npt.ArrayLike) -> _Floats:
        """[B, D] where the windows lie; compare them with ``prototypes``."""
        return self._run(windows)[1]

    def _run(self, windows: npt.ArrayLike) -> tuple[_Floats, _Floats]:
        """Logits [B, C] of all tasks and embeddings [B, D].

        Window by window: a window then has the same answer, to the bit, alone and among others.
        """
        values = np.asarray(windows, np.float32)
        if values.shape[1:] != self.window_shape or values.ndim != len(self.window_shape) + 1:
            raise DataError(
                f"windows of shape {values.shape}; the model of room '{self.room}' counts "
                f"{('B', *self.window_shape)}: make them with Windower(model.recipe)"
            )
        outputs = len(self.classes) + len(self.activities)
        logits = np.empty((len(values), outputs), np.float32)
        embeddings = np.empty((len(values), self.prototypes.shape[1]), np.float32)
        for number in range(len(values)):
            if not np.isfinite(values[number]).all():
                raise DataError(f"window {number} holds NaN or infinity; leave it out")
            one = np.ascontiguousarray(values[number : number + 1])
            logits[number], embeddings[number] = self._answer(one)
        if np.isnan(logits).any() or (logits == np.inf).any() or not np.isfinite(embeddings).all():
            raise DataError(
                f"the model of room '{self.room}' answers with NaN or infinity; train it again, "
                "with a lower training.learning_rate if it diverged"
            )
        return logits, embeddings

    def _answer(self, window: _Floats) -> tuple[_Floats, _Floats]:
        """Logits [C] and embedding [D] of one window [1, …]."""
        try:
            logits, embeddings = self._session.run(["logits", "embedding"], {"windows": window})
            return logits.reshape(-1), embeddings.reshape(-1)
        except Exception as error:  # a graph that loads may still not run; see _session
            reason = str(error).splitlines()[0][:200]
            raise DataError(
                f"the graph of room '{self.room}' cannot be run ({reason}); make the model again"
            ) from error


def find_model(place: Path, room: str | None = None) -> Path:
    """The model file of a room: ``place`` itself, or the room's in the folder of a run.

    A folder with one room needs no name.
    """
    if not place.is_dir():
        if room is not None and place.is_file():
            raise PlanError(f"{place} is a model file, of one room; leave --room {room} out")
        return place
    inner = place / "models" if (place / "models").is_dir() else place
    found = {path.stem: path for path in sorted(inner.glob("*.safetensors"))}
    if not found:
        raise DataError(
            f"{place}: holds no model files; give the folder of a run whose rooms have nets, or a "
            "file of its folder models/"
        )
    if room is None and len(found) > 1:
        raise PlanError(f"{place}: has {len(found)} rooms; say which: --room {_quoted(found)}")
    if room is not None and room not in found:
        raise PlanError(f"{place}: has no room '{room}'; {nearest(room, found)}")
    return found[room or next(iter(found))]


def _quoted(rooms: Mapping[str, Path]) -> str:
    return " | ".join(f"'{room}'" if " " in room else room for room in rooms)


def load_model(path: str | Path) -> CountingModel:
    """A room's net from a file of ``models/`` in a run's folder, ready to count without torch."""
    path = Path(path)
    about, arrays = read_parts(path)
    try:
        classes = tuple(about["classes"])
        shape = tuple(about["window_shape"])
        room, synthetic, days = about["room"], about["synthetic"], about["days"]
        answer, temperature, reach = about["answer"], about["temperature"], about["reach"]
        mean, deviation = arrays[_MEAN], arrays[_DEVIATION]
        prototypes, members = arrays[_PROTOTYPES], arrays[_MEMBERS]
        graph = arrays[_GRAPH]
        recipe_values = about["recipe"]
        second = about.get("further", {}).get(ACTIVITY, {"classes": [], "temperature": 1.0})
        activities, activity_temperature = tuple(second["classes"]), second["temperature"]
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(f"{path}: {error} is missing; not a whole model, make it again") from error
    outputs = len(classes) + len(activities)
    kinds = {type(label) for label in classes}
    sound = {
        "classes": kinds in ({int}, {str}) and len(set(classes)) == len(classes),
        "window_shape": len(shape) in (1, 2)
        and all(type(side) is int and side > 0 for side in shape),
        "room": isinstance(room, str),
        "synthetic": isinstance(synthetic, bool),
        "days": isinstance(days, list) and all(isinstance(day, str) for day in days),
        "answer": answer in get_args(Answer),
        "temperature": _is_temperature(temperature),
        "further": set(about.get("further", {})) <= {ACTIVITY}
        and all(isinstance(label, str) for label in activities)
        and len(set(activities)) == len(activities)
        and _is_temperature(activity_temperature),
        "reach": isinstance(reach, float) and 0 <= reach < np.inf,
        _MEAN: _is(mean, np.float32, shape[-1:]),
        _DEVIATION: _is(deviation, np.float32, shape[-1:]) and (deviation > 0).all(),
        _PROTOTYPES: prototypes.ndim == 2 and _is(prototypes, np.float32, (outputs, -1)),
        _MEMBERS: _is(members, np.int64, (outputs,)),
        _GRAPH: _is(graph, np.uint8, (-1,)),
    }
    for name, good in sound.items():
        if not good:
            raise DataError(f"{path}: {name} is not what a model has; damaged, make it again")
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise DataError(
                f"{path}: {name} holds NaN or infinity, so it counts nothing; train the net again, "
                "with a lower training.learning_rate if it diverged"
            )
    recipe = Recipe.of_document(
        recipe_values, place=str(path), normaliser=Normaliser(mean, deviation)
    )
    if (made := _windows_of(recipe, shape)) != shape:
        raise DataError(
            f"{path}: its recipe makes windows of {_sides(made)}, its net counts {_sides(shape)}; "
            "damaged, make it again"
        )
    session = _session(path, graph.tobytes(), arrays, (outputs, prototypes.shape[1]))
    return CountingModel(
        room=room,
        classes=classes,
        recipe=recipe,
        window_shape=shape,
        answer=answer,
        temperature=temperature,
        synthetic=synthetic,
        days=tuple(days),
        prototypes=prototypes[: len(classes)],
        present=members[: len(classes)] > 0,
        classifier=_classifier(path, arrays, prototypes.shape, len(classes)),
        reach=reach,
        activities=activities,
        activity_temperature=activity_temperature,
        _session=session,
    )


def _classifier(
    path: Path, arrays: Mapping[str, Array], shape: tuple[int, ...], classes: int
) -> tuple[_Floats, _Floats]:
    """W [C, D] and b [C] of the first task; a graph that runs may still have others."""
    weight, bias = (arrays.get(name, np.zeros(0, np.float32)) for name in (_WEIGHT, _BIAS))
    if not _is(weight, np.float32, shape) or not _is(bias, np.float32, shape[:1]):
        raise DataError(f"{path}: its classifier is not what a model has; damaged, make it again")
    return weight[:classes].astype(np.float32), bias[:classes].astype(np.float32)


def _windows_of(recipe: Recipe, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the windows that a recipe makes; as ``shape`` is where it does not say."""
    if recipe.source == "arrays":
        return shape
    if recipe.source == "features":
        return shape[-1:]
    if recipe.window is None:
        return 0, *shape[1:]
    unknown = recipe.subcarriers is None or (recipe.links == "all" and recipe.link_count is None)
    if not unknown:
        return window_shape(len(recipe.subcarriers or ()), recipe.link_count or 1, recipe)
    rows = window_shape(1, 1, recipe)
    return rows if len(rows) == 1 else (rows[0], shape[-1])


def _is_temperature(value: object) -> bool:
    """Whether logits can be divided by it and stay numbers; ``fit_temperature`` has 0.01 to 20."""
    return isinstance(value, float) and 1e-6 <= value <= 1e6


def _sides(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape))


def _is(values: Array, kind: type, shape: tuple[int, ...]) -> bool:
    """Whether an array has a type and a shape; −1 is any side."""
    sides = len(values.shape) == len(shape) and all(
        expected in (-1, side) for side, expected in zip(values.shape, shape, strict=True)
    )
    return values.dtype == kind and sides


def _session(path: Path, graph: bytes, arrays: Mapping[str, Array], widths: tuple[int, int]) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise FedapaError(
            "counting needs onnxruntime; install it in a checkout of fedapa with: pip install -e "
            "'.[count]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is told by the error
    names = sorted(
        name for name, value in arrays.items() if value.dtype == np.float32 and name != _PROTOTYPES
    )
    given = [onnxruntime.OrtValue.ortvalue_from_numpy(arrays[name]) for name in names]
    try:
        wanted = wanted_weights(graph)
    except ValueError as error:
        raise DataError(
            f"{path}: its graph is none of fedapa's ({error}); make it again"
        ) from error
    if sorted(wanted) != names:
        raise DataError(f"{path}: its graph wants other weights than the file has; make it again")
    try:
        options.add_external_initializers(names, given)
        # Without a second try, which onnxruntime would print about.
        session = onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
        made = {output.name: output.shape[-1] for output in session.get_outputs()}
    except Exception as error:  # onnxruntime's own errors have no common root but this
        reason = str(error).splitlines()[0][:200]
        raise DataError(f"{path}: its graph cannot be run ({reason}); make it again") from error
    if (made.get("logits"), made.get("embedding")) != widths:
        raise DataError(
            f"{path}: its graph gives {one_line(str(made)):.200}; damaged, make it again"
        )
    return session


def read_parts(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """What a model file says about itself, and its arrays."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; a run's nets are in its folder models/")
    try:
        with safe_open(path, "numpy") as file:
            about = json.loads((file.metadata() or {})["fedapa"])
            names = sorted(file.keys())
            for name in names:
                if (kind := file.get_slice(name).get_dtype()) not in _TYPES:
                    raise DataError(
                        f"{path}: {one_line(name):.80} is of type {kind}; expected "
                        f"{', '.join(_TYPES)}: damaged, make it again"
                    )
            arrays = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path}: not a model of fedapa, or damaged ({one_line(str(error)):.200})"
        ) from error
    version = about.get("format") if isinstance(about, dict) else None
    if version != _FORMAT:
        raise DataError(
            f"{path}: model format {version!r:.80}, this fedapa reads {_FORMAT}; run again"
        )
    if about.get("digest") != _digest(arrays):
        raise DataError(f"{path}: its numbers are not those that were saved; make it again")
    return about, arrays
