import { client, contentOf } from "./client";
import type { DeadLetterFilter } from "./types";

/** Saves dead letters as a file of JSON lines, by the browser's download. */
export async function exportRecords(pipeline: string, filter: DeadLetterFilter, query: string): Promise<void> {
  const content = await contentOf(
    client.POST("/api/pipelines/{pipeline}/dead-letters/export", {
      params: { path: { pipeline } },
      body: { filter, ...(query === "" ? {} : { query }) },
      parseAs: "blob",
    }),
  );
  const address = URL.createObjectURL(content as Blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = `${pipeline.replaceAll(/[^\w.-]/g, "_")}-dead-letters.jsonl`;
  link.click();
  URL.revokeObjectURL(address);
}
