"""The picture of an alert: what it shows, who may see it, and what a signed link opens."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from PIL import Image

from ingest.catalogue import Catalogue
from replay.band import peer_band
from replay.view.grid import ScoreGrid
from serve.config import Config, ConfigError, load_config
from serve.links import build_links
from serve.picture.draw import MACHINE, draw
from serve.picture.pictures import Pictures
from serve.picture.story import Story, tell_story
from serve.store.history import HistoryStore
from tests.api_support import Api
from tests.serve_support import SECOND, START_NS, ListSource, make_alert, make_worker, rows

KEY = "0123456789abcdef0123456789abcdef"
HTTP = {"picture_key": KEY, "public_url": "https://wl.example.org"}
DAY = 86_400


def make_api(**http: Any) -> Api:
    """An alert of m-2, whose power has fallen 30 s into a minute of history. Tokens are on."""
    api = Api(auth={"mode": "on"}, http={**HTTP, **http})
    api.services.lifecycle.links = build_links(api.services.config)
    api.clock.forward(70)
    worker = make_worker(
        ListSource(rows(machines=5), rows(machines=5, start=30, low="m-2")),
        api.clock,
        database=api.database,
        lifecycle=api.services.lifecycle,
        outbox=api.outbox,
    )
    for _ in range(3):
        worker.step(0)
        api.clock.forward(10)
    api.services.history = HistoryStore(api.database)
    api.services.metric_unit = lambda metric: Catalogue.default().metric(metric).unit
    at = START_NS + 40 * SECOND
    evidence = replace(make_alert().evidence[0], metric="gpu_power_watts", unit="W", value=20.0)
    api.find("m-2", id="a1", evidence=(evidence,), detected_at_ns=at)
    return api


def link(api: Api, alert_id: str = "llama-m-2") -> str:
    """Path and query of the picture's link, as a message would carry it."""
    token, api.token = api.token, api.new_token("read")
    url = urlsplit(api.get(f"alerts/{alert_id}").json()["links"]["picture"])
    api.token = token
    assert f"{url.scheme}://{url.netloc}" == HTTP["public_url"]
    return f"{url.path}?{url.query}"


def image(answer: httpx.Response) -> Image.Image:
    """The picture in an answer."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/png"
    found = Image.open(BytesIO(answer.content))
    assert found.format == "PNG"
    return found.convert("RGB")


def inked(picture: Image.Image, color: tuple[int, int, int]) -> int:
    """How many pixels have exactly this colour."""
    return int((np.asarray(picture) == np.array(color)).all(axis=2).sum())


@pytest.fixture
def api() -> Api:
    return make_api()


def test_a_token_that_may_read_sees_the_picture(api: Api) -> None:
    api.token = api.new_token("read")
    picture = image(api.get("alerts/llama-m-2/picture.png"))
    assert picture.width == 800
    assert inked(picture, MACHINE) > 500


def test_the_picture_is_not_sent_again_to_who_has_it(api: Api) -> None:
    api.token = api.new_token("read")
    first = api.get("alerts/llama-m-2/picture.png")
    headers = {"If-None-Match": first.headers["etag"]}
    assert api.get("alerts/llama-m-2/picture.png", headers=headers).status_code == 304


def test_an_unknown_alert_has_no_picture(api: Api) -> None:
    api.token = api.new_token("read")
    answer = api.get("alerts/nobody/picture.png")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_without_token_and_signature_there_is_no_picture(api: Api) -> None:
    assert api.get("alerts/llama-m-2/picture.png").status_code == 401


def test_a_link_opens_the_picture_without_a_token(api: Api) -> None:
    answer = api.get(link(api))
    assert image(answer).width == 800
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"


def test_a_link_ends_after_its_days(api: Api) -> None:
    address = link(api)
    api.clock.forward(7 * DAY - 600)
    assert api.get(address).status_code == 200
    api.clock.forward(1200)
    assert api.get(address).status_code == 401


@pytest.mark.parametrize("part", ["signature", "expires"])
def test_a_changed_link_opens_nothing(api: Api, part: str) -> None:
    path, query = link(api).split("?")
    values = dict(item.split("=") for item in query.split("&"))
    if part == "signature":
        last = values[part][-1]
        values[part] = values[part][:-1] + ("0" if last != "0" else "1")
    else:
        values[part] = str(int(values[part]) + DAY)
    answer = api.get(path, params=values)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_link_of_one_alert_does_not_open_another(api: Api) -> None:
    api.find("m-3")
    query = link(api).split("?")[1]
    assert api.get(f"alerts/llama-m-3/picture.png?{query}").status_code == 401


@pytest.mark.parametrize("path", ["alerts/llama-m-2", "alerts", "jobs", "jobs/llama/scores"])
def test_a_signature_opens_no_other_path(api: Api, path: str) -> None:
    query = link(api).split("?")[1]
    assert api.get(f"{path}?{query}").status_code == 401


def test_a_signature_changes_nothing(api: Api) -> None:
    query = link(api).split("?")[1]
    assert api.post(f"alerts/llama-m-2/acknowledge?{query}").status_code == 401


def test_a_signature_of_another_key_opens_nothing(api: Api) -> None:
    address = link(api)
    assert make_api(picture_key=KEY[::-1]).get(address).status_code == 401


def test_a_token_opens_the_picture_even_with_an_old_link(api: Api) -> None:
    address = link(api)
    api.clock.forward(8 * DAY)
    api.token = api.new_token("read")
    assert api.get(address).status_code == 200


def test_a_signature_that_is_none_is_refused_as_input(api: Api) -> None:
    assert api.get("alerts/llama-m-2/picture.png?expires=9&signature=x").status_code == 422


def test_messages_carry_the_link_and_asking_again_does_not_change_it(api: Api) -> None:
    (notice,) = [n for n in api.outbox.notices if n.alert and n.alert.machine == "m-2"][:1]
    assert urlsplit(notice.links["picture"]).path == "/api/v1/alerts/llama-m-2/picture.png"
    before = link(api)
    api.clock.forward(3600)
    assert link(api) == before


@pytest.mark.parametrize("missing", ["picture_key", "public_url"])
def test_without_key_or_public_url_there_is_no_link(missing: str) -> None:
    given = {key: value for key, value in HTTP.items() if key != missing}
    links = build_links(Config.model_validate({"http": given}))
    assert "picture" not in links.alert("a", "j", START_NS)
    assert "picture" in build_links(Config.model_validate({"http": HTTP})).alert("a", "j", 0)


def test_a_key_that_can_be_guessed_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"PICTURE_KEY: must have at least 32") as caught:
        load_config(None, {"WEAKLINK_HTTP__PICTURE_KEY": "hunter2"})
    assert "hunter2" not in str(caught.value)
    links = build_links(Config.model_validate({"http": HTTP}))
    assert KEY not in repr(links)


def test_what_is_stored_is_told_with_the_named_machine_first(api: Api) -> None:
    alert = make_alert("m-2", detected_at_ns=START_NS + 40 * SECOND)
    alert = replace(alert, evidence=(replace(alert.evidence[0], metric="gpu_power_watts"),))
    story = tell_story(alert, api.services.history, lambda metric: "W")
    ((metric, unit, band),) = story.panels
    assert (metric, unit) == ("gpu_power_watts", "W")
    assert (band.value[0], band.value[-1]) == (300.0, 20.0)
    assert story.grid is not None
    assert story.grid.machines[0] == "m-2"
    assert story.machines == 5


def test_when_time_is_up_the_alert_itself_is_drawn(api: Api) -> None:
    story = tell_story(make_alert("m-2"), api.services.history, str, lambda: False)
    assert story.panels == ()
    assert story.grid is None
    assert inked(Image.open(BytesIO(draw(story))).convert("RGB"), MACHINE) > 100


def test_without_history_the_picture_shows_what_the_alert_holds() -> None:
    api = Api()
    api.find("m-3")
    assert inked(image(api.get("alerts/llama-m-3/picture.png")), MACHINE) > 100


@pytest.mark.parametrize(
    "fields",
    [
        {"verdict": "job", "machine": None, "machines": (), "evidence": ()},
        {"machine": "x" * 5000, "job": "line\nbreak\x00\u2028é漢"},
        {"onset_ns": START_NS - 10**17},
        {"evidence": (replace(make_alert().evidence[0], value=None, peer_low=None),)},
        {"evidence": (replace(make_alert().evidence[0], value=float("inf")),)},
        {"evidence": (replace(make_alert().evidence[0], value=1e300, peer_high=-1e300),)},
    ],
)
def test_every_alert_can_be_drawn(fields: dict[str, Any]) -> None:
    api = Api()
    story = tell_story(replace(make_alert(), **fields), api.services.history, lambda metric: "W")
    assert Image.open(BytesIO(draw(story))).width == 800


@pytest.mark.parametrize("what", ["flat", "empty", "infinite", "long"])
def test_every_band_can_be_drawn(what: str) -> None:
    ticks = 20_000 if what == "long" else 60
    values = np.ones((4, ticks), np.float32)
    if what == "empty":
        values[:] = np.nan
    if what == "infinite":
        values[1] = np.inf
    times = START_NS + np.arange(ticks, dtype=np.int64) * SECOND
    grid = ScoreGrid("j", START_NS, SECOND, ("m-3", "b", "c", "d"), values)
    panels = (("m", "W", peer_band(values, 0, times)),)
    story = Story(make_alert(), "m-3", START_NS, int(times[-1]), panels, grid, 4)
    body = draw(story)
    assert Image.open(BytesIO(body)).width == 800
    assert len(body) < 500_000


def test_a_picture_is_drawn_once_for_many_who_ask(api: Api) -> None:
    pictures, alert = Pictures(), make_alert("m-2", detected_at_ns=START_NS)
    late = START_NS + 3600 * SECOND

    def png(version: int) -> bytes:
        return pictures.png(alert, version, api.services.history, str, now_ns=late)

    first = png(1)
    assert png(1) is first
    assert png(2) is not first
