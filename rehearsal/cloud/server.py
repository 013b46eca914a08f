"""The embedded AWS as one object: start, seed, deploy against it, verify, stop."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from moto.amp.models import amp_backends
from moto.moto_api._internal.models import moto_api_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.models import s3_backends
from moto.ssm.models import ssm_backends
from werkzeug.serving import BaseWSGIServer, make_server

from rehearsal.cloud import patches, stack_api
from rehearsal.cloud.capacity import capacity_types
from rehearsal.cloud.catalog import Catalog
from rehearsal.cloud.clients import OWN_CREDENTIALS, Clients
from rehearsal.cloud.custom import RESPONSE_PATH, CustomResources, Handler
from rehearsal.cloud.functions import FunctionRunner
from rehearsal.cloud.identity import identity_types
from rehearsal.cloud.metrics import RemoteWrite
from rehearsal.cloud.moto_types import MotoType
from rehearsal.cloud.network import network_types
from rehearsal.cloud.seed import Seed, plant
from rehearsal.cloud.services import NestedStack, service_types
from rehearsal.cloud.ssm import AGENT_ACTIONS, CommandService, Runner
from rehearsal.cloud.stack import Stack
from rehearsal.cloud.stack_engine import StackEngine
from rehearsal.cloud.storage import storage_types
from rehearsal.cloud.verify import check_assembly, find_tracebacks
from rehearsal.cloud_errors import CloudError, TemplateInvalid
from rehearsal.cloud_model import ACCOUNT, PARTITION, STACK_TYPE, CloudEvent, ResourceType
from rehearsal.permissions.authority import Authority, Credentials, Denied, acting
from rehearsal.permissions.resource_types import RIGHTS, Permitted

_LOGGERS = ("werkzeug", "moto", "rehearsal.cloud")
_STOP_WAIT_S = 5.0
_APPLICATION = DomainDispatcherApplication(create_backend_app)  # holds no state, and takes a second to build anew
RequestHandler = Callable[[dict[str, Any], Callable[..., Any]], "Iterable[bytes] | None"]


class Address(NamedTuple):
    """Where an embedded AWS listens (port 0: a free port), and the name by which the hosts reach it."""

    host: str = "127.0.0.1"
    port: int = 0
    name: str = "localhost"


class EmbeddedAws:
    """An AWS account in this process, for one region.

    `run_dir` gets the server's log and the functions' code and output.
    `query_interval_s` replaces the Provider framework's interval in seconds; `settle_s`: see StackEngine. `listener`
    receives every CloudEvent, from several threads.

    moto keeps its state in the process, so only one can be started at a time; starting one forgets what was before.
    Raises CloudError when another one runs or the port is taken.
    """

    _running: ClassVar[EmbeddedAws | None] = None
    _class_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        region: str,
        run_dir: Path,
        address: Address | None = None,
        listener: Callable[[CloudEvent], None] = lambda _: None,
        query_interval_s: float | None = None,
        settle_s: float = 0.0,
    ) -> None:
        self.region = region
        self.run_dir = run_dir
        self.log_path = run_dir / "cloud.log"
        self._address = address or Address()
        self._server: BaseWSGIServer | None = None
        self._thread: threading.Thread | None = None
        self._log_handler: logging.Handler | None = None
        self.authority = Authority(region)
        self.clients = Clients(region, lambda: self.address_endpoint, lambda: self.authority.credentials(acting.get()))
        self._functions = FunctionRunner(region, run_dir / "functions", lambda: self.address_endpoint, self.authority)
        self._custom = CustomResources(
            self.clients, self._functions, lambda: self.address_endpoint, self.authority, query_interval_s
        )
        self.commands = CommandService()
        self._metrics = RemoteWrite(lambda name: name in amp_backends[ACCOUNT][region].workspaces, self._may_write)
        self.credentials_at: Callable[[str], Credentials | None] = lambda _: None  # of the instance at an address
        # Each gets a request before moto does and returns its answer or None; the first answer counts.
        self.handlers: list[RequestHandler] = [self.authority.refuse, self._answer_function, self._metrics.answer]
        self._moto_types: dict[str, MotoType] = {}
        self.stacks = StackEngine(
            region, self._catalog(), self._read_parameter, self._read_template, listener, settle_s, self._acting_for
        )

    # ---- life ----

    def start(self) -> None:
        """Listen, with empty services."""
        with EmbeddedAws._class_lock:
            if EmbeddedAws._running is not None:
                raise CloudError("an embedded AWS already runs in this process: stop it first")
            self._open_log()
            host, port, _ = self._address
            try:
                self._server = make_server(
                    host, port, self._dispatch, threaded=True, request_handler=MotoRequestHandler
                )
            except (OSError, SystemExit) as error:  # werkzeug exits the process when a port is taken
                self._close_log()
                raise CloudError(
                    f"{host}:{port}: cannot listen: {error}. Another program uses the port: stop it, or use port 0."
                ) from None
            EmbeddedAws._running = self
        patches.install(lambda: f"http://{self._address.name}:{self.port}")
        self.reset()
        stack_api.install(self.stacks, self._read_template)
        self.commands.install()
        self._functions.install()
        self._thread = threading.Thread(target=self._server.serve_forever, name="embedded-aws", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening; safe to call twice."""
        with EmbeddedAws._class_lock:
            if EmbeddedAws._running is not self:
                return
            EmbeddedAws._running = None
        self._custom.stop()
        self.stacks.wait_idle(_STOP_WAIT_S)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        if self._thread is not None:
            self._thread.join(_STOP_WAIT_S)
        self._close_log()

    def __enter__(self) -> EmbeddedAws:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- addresses ----

    @property
    def port(self) -> int:
        """The port it listens on; raises CloudError before start."""
        if self._server is None:
            raise CloudError("the embedded AWS is not started")
        return int(self._server.server_address[1])

    @property
    def endpoint(self) -> str:
        """Endpoint for the CDK CLI (a name, so that its S3 client accepts it)."""
        return f"http://localhost:{self.port}"

    @property
    def address_endpoint(self) -> str:
        """Endpoint for boto3 and pcluster (an address, so that S3 uses path style)."""
        return f"http://127.0.0.1:{self.port}"

    def env(self, credentials: Mapping[str, str] = OWN_CREDENTIALS) -> dict[str, str]:
        """Environment for the CDK CLI and app: this endpoint, these credentials, no look at the outside."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            **credentials,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "CDK_DEFAULT_ACCOUNT": ACCOUNT,
            "CDK_DEFAULT_REGION": self.region,
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CDK_NOTICES": "false",
            "NO_PROXY": "localhost,127.0.0.1",
        }

    # ---- what the engine sets ----

    def register_custom_resource(self, type_name: str, handler: Handler) -> None:
        """Serve a custom resource type in Python (Custom::PclusterCluster)."""
        self._custom.register(type_name, handler)

    def set_ssm_runner(self, runner: Runner | None) -> None:
        """What runs commands on hosts."""
        self.commands.set_runner(runner)

    def register_instance(
        self, instance_id: str, name: str = "", address: str = "", credentials: Credentials | None = None
    ) -> None:
        """A host's agent reports to Systems Manager if the instance's role allows that; None: no role is asked."""
        principal = self.authority.principal(credentials.access_key) if credentials else None
        if principal is None or all(self.authority.allows(principal, action) for action in AGENT_ACTIONS):
            self.commands.register(instance_id, name, address)

    def reset(self) -> None:
        """Make the account empty again. moto forgets the stacks; our own records of them stay."""
        moto_api_backend.reset()

    def seed(self, seed: Seed) -> None:
        """Make what is there before the deployment."""
        plant(self.clients, seed)

    # ---- what the engine asks ----

    def verify(self, cdk_out: Path, stacks: Collection[str] | None = None) -> list[str]:
        """Problems of the deployment of a cloud assembly, tracebacks of the server included; empty: all is there.

        `stacks`: names of the stacks that were meant to be deployed; None: every one of the assembly.
        """
        return check_assembly(self.stacks, cdk_out, stacks) + self.tracebacks()

    def tracebacks(self) -> list[str]:
        """One problem for each traceback in the server's log."""
        for handler in logging.getLogger("rehearsal.cloud").handlers:
            handler.flush()
        return find_tracebacks(self.log_path)

    # ---- inside ----

    def _catalog(self) -> Catalog:
        own: dict[str, ResourceType] = {STACK_TYPE: NestedStack(lambda: self.stacks)}
        for types in (network_types, storage_types, capacity_types, service_types, identity_types):
            own.update(types(self.clients))
        for name in own.keys() & RIGHTS.keys():
            own[name] = Permitted(own[name], name, self.authority)
        return Catalog(own, self._custom, self._moto_type)

    def _moto_type(self, name: str) -> ResourceType:
        remove = self._remove_bucket if name == "AWS::S3::Bucket" else None
        kind = self._moto_types.setdefault(name, MotoType(name, remove))
        return Permitted(kind, name, self.authority)

    @contextlib.contextmanager
    def _acting_for(self, stack: Stack) -> Iterator[None]:
        """As CloudFormation: with the stack's role, without one with the credentials of who asked."""
        role, caller = stack.options.role_arn, stack.options.caller
        with self.authority.as_role(
            self.authority.session(role, "AWSCloudFormation") if role else self.authority.credentials(caller)
        ):
            yield

    def _remove_bucket(self, name: str) -> None:
        self.clients("s3").delete_bucket(Bucket=name)  # refuses a bucket that is not empty, which moto's model does not

    def _dispatch(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        for handler in self.handlers:
            answer = handler(environ, start_response)
            if answer is not None:
                return answer
        response: Iterable[bytes] = _APPLICATION(environ, start_response)
        return response

    def _may_write(self, address: str, workspace_id: str) -> str:
        """Why the instance at an address may not write metrics; empty if it may, or is not known."""
        credentials = self.credentials_at(address)
        principal = self.authority.principal(credentials.access_key) if credentials else None
        try:
            if principal is not None:
                workspace = amp_backends[ACCOUNT][self.region].workspaces[workspace_id]
                self.authority.authorize(principal, "aps:RemoteWrite", workspace.arn)
        except Denied as error:
            return str(error)
        return ""

    def _answer_function(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes] | None:
        path = environ.get("PATH_INFO", "")
        if not path.startswith(RESPONSE_PATH):
            return None
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        good = self._custom.answer(path[len(RESPONSE_PATH) :], body)
        start_response("200 OK" if good else "400 Bad Request", [("Content-Length", "0")])
        return [b""]

    def _read_parameter(self, name: str) -> str:
        found = ssm_backends[ACCOUNT][self.region].get_parameter(name)
        if found is None:
            raise TemplateInvalid(f"Unable to fetch parameters [{name}] from parameter store for this account.")
        return str(found.value)

    def _read_template(self, url: str) -> str:
        bucket, key = stack_api.bucket_and_key(url)
        buckets = s3_backends[ACCOUNT][PARTITION].buckets
        found = buckets[bucket].keys.get(key) if bucket in buckets else None
        if found is None:
            raise TemplateInvalid(f"S3 error: the specified key does not exist: {bucket}/{key} (TemplateURL {url})")
        text: str = found.value.decode("utf-8")
        return text

    def _open_log(self) -> None:
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self._log_handler = logging.FileHandler(self.log_path, encoding="utf-8")
        self._log_handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.addHandler(self._log_handler)
            logger.setLevel(logging.INFO)
            logger.propagate = False

    def _close_log(self) -> None:
        if self._log_handler is None:
            return
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self._log_handler)
            logging.getLogger(name).propagate = True
        self._log_handler.close()
        self._log_handler = None
