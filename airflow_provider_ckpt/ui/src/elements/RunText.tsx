import { chakra } from "@chakra-ui/react";

import type { RunLink } from "../api/types";
import { dagPath, runPath } from "../app/paths";
import { visible } from "../format/text";
import { TextLink } from "./TextLink";
import { UserText } from "./UserText";

interface RunTextProps {
  readonly run: RunLink | null;
  /** Name of the owner, for one that is no DAG run. */
  readonly owner: string | null;
}

/** Who holds a lease or made an attempt: a DAG run as links to Airflow's pages, anything else by its name. */
export function RunText({ run, owner }: RunTextProps) {
  if (run === null) {
    return <UserText>{owner ?? "nobody"}</UserText>;
  }
  return (
    <chakra.span>
      run <TextLink to={runPath(run)}>{visible(run.run_id)}</TextLink> of DAG{" "}
      <TextLink to={dagPath(run.dag_id)}>{visible(run.dag_id)}</TextLink>
    </chakra.span>
  );
}
