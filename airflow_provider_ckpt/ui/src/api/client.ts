import createClient from "openapi-fetch";

import type { paths } from "./schema";
import type { Problem } from "./types";

/** The API refused a request, or could not be reached (status 0). Title, detail and hint are for the user. */
export class ApiError extends Error {
  readonly status: number;
  readonly title: string;
  readonly hint: string | undefined;

  constructor(status: number, title: string, detail: string, hint?: string | null) {
    super(detail);
    this.status = status;
    this.title = title;
    this.hint = hint ?? undefined;
  }
}

/** Airflow's pages may stand below a path; their `<base href>` says which. */
export function fromBase(path: string): string {
  return new URL(path, document.baseURI).href;
}

export const client = createClient<paths>({
  baseUrl: fromBase("ckpt"),
  credentials: "same-origin",
  fetch: (request) => globalThis.fetch(request),
});

interface Answer<T> {
  readonly data?: T;
  readonly error?: unknown;
  readonly response: Response;
}

/**
 * The content of an answer of the API.
 *
 * @throws ApiError if the API refused, or could not be reached
 */
export async function contentOf<T>(request: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await request.catch((reason: unknown) => {
    throw new ApiError(
      0,
      "Airflow does not answer",
      String(reason),
      "Check the network, and that the API server runs.",
    );
  });
  if (response.status === 401) {
    logIn();
  }
  if (!response.ok || data === undefined) {
    throw problemOf(response, error);
  }
  return data;
}

/** Airflow sends its own requests to the login page when the session has ended; a plugin has to do it itself. */
function logIn(): void {
  const next = encodeURIComponent(globalThis.location.href);
  globalThis.location.replace(fromBase(`api/v2/auth/login?next=${next}`));
}

function problemOf(response: Response, body: unknown): ApiError {
  const problem = (typeof body === "object" && body !== null ? body : {}) as Partial<Problem> & { detail?: unknown };
  const fields = (problem.errors ?? []).map((error) => `${error.field}: ${error.message}`).join("; ");
  const detail = typeof problem.detail === "string" ? problem.detail : `The server answered ${response.status}.`;
  const title = problem.title ?? response.statusText;
  return new ApiError(
    response.status,
    title,
    fields === "" ? detail : `${detail} ${fields}`,
    problem.hint ?? undefined,
  );
}
