"""The configuration file: one bad file per mistake, each one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from serve.config import Config, ConfigError, HttpSettings, load_config


def _load(tmp_path: Path, text: str, **environ: str) -> Config:
    path = tmp_path / "weaklink.toml"
    path.write_text(text)
    return load_config(path, environ)


BAD = {
    "not TOML": ("[http\nport = 1", "not valid TOML"),
    "unknown section": ("[htttp]\nport = 1", "htttp: unknown key (did you mean http?)"),
    "unknown key": ("[http]\nprot = 1", "http.prot: unknown key (did you mean port?)"),
    "unknown nested key": (
        '[kafka.tls]\nca_fil = "x"',
        "kafka.tls.ca_fil: unknown key (did you mean ca_file?)",
    ),
    "wrong type": ('[http]\nport = "web"', "http.port:"),
    "out of range": ("[http]\nport = 70000", "http.port:"),
    "negative duration": ("[alerts]\nsettle_seconds = -1", "alerts.settle_seconds:"),
    "infinite duration": ("[alerts]\nsettle_seconds = inf", "alerts.settle_seconds:"),
    "not a number": ("[alerts]\nsettle_seconds = nan", "alerts.settle_seconds:"),
    "text for a number": ('[alerts]\nsettle_seconds = "30s"', "alerts.settle_seconds:"),
    "unknown choice": ('[source]\nkind = "nats"', "source.kind:"),
    "url without a scheme": ('[http]\npublic_url = "weaklink.example"', "http.public_url:"),
    "secret and its file": (
        '[database]\nurl = "sqlite://"\nurl_file = "x"',
        "database: url and url_file exclude each other",
    ),
    "secret file is missing": ('[database]\nurl_file = "/no/such"', "cannot read /no/such"),
    "empty secret": ('[database]\nurl = " "', "database.url: must not be empty"),
    "section is not a table": ("http = 3", "http:"),
    "storm above breaker": (
        "[alerts]\nstorm_alerts = 20\nbreaker_pages = 3",
        "alerts.storm_alerts must not be above alerts.breaker_pages",
    ),
    "receiver without a type": ('[[notify.receivers]]\nname = "a"', "notify.receivers.0"),
    "route to nobody": ('[[notify.routes]]\nreceivers = ["x"]', "no receiver 'x'"),
    "zero bytes of history": ("[retention]\nhistory_bytes = 0", "retention.history_bytes:"),
}


@pytest.mark.parametrize("mistake", sorted(BAD))
def test_a_bad_file_gets_one_line_that_names_file_key_and_reason(
    mistake: str, tmp_path: Path
) -> None:
    text, expected = BAD[mistake]
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, text)
    message = str(refused.value)
    assert message.startswith(str(tmp_path / "weaklink.toml"))
    assert expected in message
    assert "\n" not in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.toml: No such file"):
        load_config(tmp_path / "nothing.toml", {})


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(path, {})


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, "[http]\nport = -1\nprot = 2\nburst_requests = 0\n[log]\nlevel = 'loud'")
    assert str(refused.value).count(str(tmp_path)) == 3
    assert "(and 1 more)" in str(refused.value)


def test_without_a_file_everything_has_a_default() -> None:
    config = load_config(None, {})
    assert config.http.port == 8080
    assert not config.auth_on
    assert config.public_url == "http://127.0.0.1:8080"


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    config = _load(
        tmp_path,
        "[http]\nport = 1",
        WEAKLINK_HTTP__PORT="9000",
        WEAKLINK_ALERTS__SHADOW_JOBS='["a*", "b"]',
        WEAKLINK_SOURCE__KIND="kafka",
        WEAKLINK_KAFKA__TOPICS='{"t" = "json"}',
    )
    assert config.http.port == 9000
    assert config.alerts.shadow_jobs == ("a*", "b")
    assert config.source.kind == "kafka"
    assert config.kafka.topics == {"t": "json"}


def test_a_mistake_in_the_environment_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="environment: WEAKLINK_HTTP__PORT"):
        _load(tmp_path, "", WEAKLINK_HTTP__PORT="many")
    with pytest.raises(ConfigError, match="WEAKLINK_HTTP__PROT: unknown key"):
        _load(tmp_path, "", WEAKLINK_HTTP__PROT="1")


def test_other_variables_are_left_alone(tmp_path: Path) -> None:
    _load(tmp_path, "", WEAKLINK_TEST_POSTGRES="x", PATH="y", OTHER__THING="z")


def test_a_secret_comes_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://u:hidden@h/d\n")
    config = _load(tmp_path, f'[database]\nurl_file = "{tmp_path / "url"}"')
    assert config.database.url.get_secret_value() == "postgresql://u:hidden@h/d"


def test_a_secret_in_the_environment_replaces_the_files(tmp_path: Path) -> None:
    config = _load(
        tmp_path, '[database]\nurl_file = "/no/such"', WEAKLINK_DATABASE__URL="sqlite:///x"
    )
    assert config.database.url.get_secret_value() == "sqlite:///x"


def test_secrets_are_masked_wherever_the_configuration_is_shown(tmp_path: Path) -> None:
    config = _load(tmp_path, '[database]\nurl = "postgresql://u:hidden@h/d"')
    for shown in (str(config), repr(config), config.model_dump_json()):
        assert "hidden" not in shown


def test_a_refused_value_is_not_repeated_where_it_may_be_secret(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, '[database]\nurl = ["hidden"]')
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("host", "mode", "on"),
    [
        ("127.0.0.1", "auto", False),
        ("::1", "auto", False),
        ("localhost", "auto", False),
        ("0.0.0.0", "auto", True),
        ("10.0.0.5", "auto", True),
        ("::", "auto", True),
        ("gpu-monitor", "auto", True),
        ("0.0.0.0", "off", False),
        ("127.0.0.1", "on", True),
    ],
)
def test_tokens_are_needed_where_others_can_reach_the_service(
    host: str, mode: str, on: bool
) -> None:
    config = Config.model_validate({"http": {"host": host}, "auth": {"mode": mode}})
    assert config.auth_on is on


def test_the_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError):
        Config().http.port = 1


def test_an_ipv6_address_is_bracketed_in_links() -> None:
    assert Config(http=HttpSettings(host="::1")).public_url == "http://[::1]:8080"


def test_every_duration_and_size_names_its_unit() -> None:
    import serve.config as module

    units = ("_seconds", "_hours", "_days", "_bytes", "_rows", "_jobs", "_per_second")
    plain = {"port", "event_streams", "burst_requests", "storm_alerts", "breaker_pages"}
    sections = [
        kind
        for name, kind in vars(module).items()
        if name.endswith("Settings") and kind.__module__ == "serve.config"
    ]
    assert len(sections) >= 9
    for section in sections:
        for key, field in section.model_fields.items():
            if field.annotation in (int, float):
                named = key.endswith(units) or "_bytes" in key or key in plain
                assert named, f"{section.__name__}.{key} does not say its unit"
