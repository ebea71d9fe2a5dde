import { Box } from "@chakra-ui/react";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { Navigate, Route, Routes } from "react-router-dom";

import { shouldRetry } from "./api/queries";
import { LiveRefresh } from "./app/live";
import { PipelineList } from "./list/PipelineList";
import { PipelinePage } from "./pipeline/PipelinePage";

const queries = new QueryClient({
  defaultOptions: { queries: { retry: shouldRetry, staleTime: 2_000 } },
});

interface PageProps {
  readonly dagId?: string;
  readonly taskId?: string;
}

/** The app that Airflow's page loads, in its navigation or in a tab of the DAG, run or task instance that it names. */
export default function Page({ dagId, taskId }: PageProps) {
  return (
    <QueryClientProvider client={queries}>
      <LiveRefresh>
        <Box as="section" data-testid="ckpt-page" height="100%" overflow="auto" p={4}>
          <Routes>
            <Route element={<PipelineList dagId={dagId} taskId={taskId} />} index />
            <Route element={<PipelineList dagId={dagId} key="database" taskId={taskId} />} path="databases/:database" />
            <Route element={<PipelinePage />} path="pipelines/:pipeline/:view" />
            <Route element={<Navigate replace to="line" />} path="pipelines/:pipeline" />
            <Route element={<Navigate replace to=".." />} path="*" />
          </Routes>
        </Box>
      </LiveRefresh>
    </QueryClientProvider>
  );
}
