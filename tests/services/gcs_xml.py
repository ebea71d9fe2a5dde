"""Translate the part of Google Cloud Storage's XML API that obstore uses to the JSON API of a server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

from tests.services.http_exchange import Answer, HttpServer, Request, ask

_JSON = ("/storage/", "/upload/", "/batch/", "/download/")


class XmlFront(HttpServer):
    """The front, on a port of its own.

    :param port: port of the server that speaks JSON
    """

    def __init__(self, port: int) -> None:
        super().__init__(self._translated)
        self._target = port
        self._parts: dict[str, dict[int, bytes]] = {}

    def _translated(self, request: Request) -> Answer:
        """Return the answer to a request of the XML interface; one of the JSON interface is passed on as it is."""
        url = urlsplit(request.target)
        if url.path.startswith(_JSON):
            return self._ask(request.method, request.target, request.body, request.headers)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        if not key:
            return self._list(bucket, query)
        if "uploads" in query or "uploadId" in query:
            return self._in_parts(request, bucket, key, query)
        if request.method == "PUT":
            return self._put(bucket, key, request.headers, request.body)
        if request.method in ("GET", "HEAD"):
            return self._get(request.method, bucket, key, request.headers)
        return self._ask(request.method, _object(bucket, key))

    def _put(self, bucket: str, key: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if source := headers.get("x-goog-copy-source"):
            from_bucket, _, from_key = unquote(source).lstrip("/").partition("/")
            found = self._get("GET", from_bucket, from_key, {})
            if found.status != 200:
                return found
            body = found.body
        query = {"uploadType": "media", "name": key}
        if generation := headers.get("x-goog-if-generation-match"):
            query["ifGenerationMatch"] = generation
        answer = self._ask("POST", f"/upload/storage/v1/b/{quote(bucket)}/o?{urlencode(query)}", body)
        if answer.status != 200:
            return answer
        stored = json.loads(answer.body)
        return Answer(200, {"etag": _quoted(stored["etag"]), "x-goog-generation": str(stored["generation"])})

    def _get(self, method: str, bucket: str, key: str, headers: Mapping[str, str]) -> Answer:
        passed = {name: value for name, value in headers.items() if name == "range"}
        answer = self._ask(method, f"/download{_object(bucket, key)}?alt=media", headers=passed)
        wanted = headers.get("if-match")
        if answer.status < 300 and wanted and _quoted(wanted) != _quoted(answer.headers.get("etag", "")):
            return Answer(412)
        return answer

    def _in_parts(self, request: Request, bucket: str, key: str, query: Mapping[str, str]) -> Answer:
        if "uploads" in query:
            upload = uuid.uuid4().hex
            self._parts[upload] = {}
            return _xml(f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>")
        parts = self._parts.get(query["uploadId"])
        if parts is None:
            return Answer(404)
        if request.method == "PUT":
            parts[int(query["partNumber"])] = request.body
            return Answer(200, {"etag": f'"{query["partNumber"]}"'})
        del self._parts[query["uploadId"]]
        if request.method == "DELETE":
            return Answer(204)
        answer = self._put(bucket, key, {}, b"".join(parts[number] for number in sorted(parts)))
        if answer.status != 200:
            return answer
        etag = f"<ETag>{escape(answer.headers['etag'])}</ETag>"
        return _xml(f"<CompleteMultipartUploadResult>{etag}</CompleteMultipartUploadResult>", answer.headers)

    def _list(self, bucket: str, query: Mapping[str, str]) -> Answer:
        after = query.get("start-after", "")
        asked = {
            "prefix": query.get("prefix", ""),
            "delimiter": query.get("delimiter", ""),
            "startOffset": after,
            "maxResults": query.get("max-keys", "1000"),
            "pageToken": query.get("continuation-token", ""),
        }
        wanted = urlencode({name: value for name, value in asked.items() if value})
        answer = self._ask("GET", f"/storage/v1/b/{quote(bucket)}/o?{wanted}")
        if answer.status != 200:
            return answer
        page: dict[str, Any] = json.loads(answer.body)
        parts = [_contents(item) for item in page.get("items") or () if item["name"] != after]
        for prefix in page.get("prefixes") or ():
            parts.append(f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>")
        if token := page.get("nextPageToken"):
            parts.append(f"<NextContinuationToken>{escape(token)}</NextContinuationToken>")
        return _xml(f"<ListBucketResult>{''.join(parts)}</ListBucketResult>")

    def _ask(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        passed = {name: value for name, value in (headers or {}).items() if name != "host"}
        return ask(self._target, Request(method, target, passed, body)) or Answer(503)


def _object(bucket: str, key: str) -> str:
    return f"/storage/v1/b/{quote(bucket)}/o/{quote(key, safe='')}"


def _quoted(etag: str) -> str:
    return '"' + etag.strip('"') + '"'


def _contents(item: Mapping[str, Any]) -> str:
    return (
        f"<Contents><Key>{escape(item['name'])}</Key><Generation>{item['generation']}</Generation>"
        f"<LastModified>{item['updated']}</LastModified><ETag>{escape(_quoted(item['etag']))}</ETag>"
        f"<Size>{item['size']}</Size></Contents>"
    )


def _xml(text: str, headers: Mapping[str, str] | None = None) -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode()
    return Answer(200, {**(headers or {}), "content-type": "application/xml"}, body)
