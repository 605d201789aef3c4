"""Vectors in the form that each metric compares, and the nearest of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import tailrace
from tailrace.indexes.vectors.comparison import nearest, prepared, query_vector, to_vectors
from tailrace.indexes.vectors.kind import COSINE, INNER_PRODUCT, L2, METRICS, VectorOptions


def options(metric: str, dimension: int = 2) -> VectorOptions:
    return VectorOptions(metric=metric, dimension=dimension)


@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e-40, 1e18])
def test_cosine_compares_directions_of_any_length(scale: float) -> None:
    vectors = np.array([[3, 4], [0, 0]], np.float32) * np.float32(scale)
    assert prepared(options(COSINE), vectors) == pytest.approx(
        np.array([[0.6, 0.8], [0, 0]]), rel=1e-4
    )


@pytest.mark.parametrize("metric", [INNER_PRODUCT, L2])
def test_other_metrics_take_vectors_as_they_are(metric: str) -> None:
    vectors = np.array([[3, 4]], np.float32)
    assert prepared(options(metric), vectors).tolist() == [[3, 4]]


@pytest.mark.parametrize("metric", METRICS)
def test_the_nearest_are_those_of_a_look_at_every_pair(metric: str) -> None:
    random = np.random.default_rng(3)
    own = options(metric, 5)
    vectors = prepared(own, random.normal(size=(200, 5)).astype(np.float32))
    queries = prepared(own, random.normal(size=(70, 5)).astype(np.float32))
    if metric == L2:
        scores = -((queries[:, None] - vectors[None]) ** 2).sum(axis=2)
    else:
        scores = queries @ vectors.T
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :3]
    assert (nearest(own, queries, vectors, 3) == expected).all()


def test_a_column_of_lists_becomes_a_matrix() -> None:
    column = pa.chunked_array([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]], pa.list_(pa.float64()))
    assert to_vectors(column, 2).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert to_vectors(column.slice(1, 1), 2).tolist() == [[3, 4]]
    assert to_vectors(column.slice(0, 0), 2).shape == (0, 2)
    with pytest.raises(tailrace.InvalidError, match="another dimension"):
        to_vectors(column, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("late", "searched for 2 numbers"),
        ([1], "has 1 elements; the index has the dimension 2"),
        ([[1, 2]], "elements; the index has the dimension 2"),
        ([1, float("inf")], "not finite"),
        ([1, None], "not finite"),
    ],
)
def test_what_is_no_vector_is_named(given: object, message: str) -> None:
    with pytest.raises(tailrace.InvalidError, match=message):
        query_vector(options(L2), given)


def test_a_query_is_a_matrix_of_one_row() -> None:
    assert query_vector(options(L2), (1, 2)).tolist() == [[1, 2]]
