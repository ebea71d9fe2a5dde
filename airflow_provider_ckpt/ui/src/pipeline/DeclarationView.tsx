import { chakra, Text } from "@chakra-ui/react";

import { useDeclaration } from "../api/queries";
import { Empty, Failure, Loading } from "../elements/States";
import { visible } from "../format/text";

/** The declaration with which the newest run worked. */
export function DeclarationView({ pipeline }: { readonly pipeline: string }) {
  const { data, error, isPending, refetch } = useDeclaration(pipeline);
  if (error !== null) {
    return <Failure error={error} onRetry={() => void refetch()} what="The declaration could not be read" />;
  }
  if (isPending) {
    return <Loading rows={6} what="the declaration" />;
  }
  if (data.yaml === null) {
    return <Empty title="No declaration yet">The first run stores the declaration that it works with.</Empty>;
  }
  return (
    <>
      <Text color="fg.muted" fontSize="sm" mb={2}>
        As the newest run worked with it. Connections are named by their ids; secrets are not stored here.
      </Text>
      <chakra.pre
        bg="bg.subtle"
        borderColor="border"
        borderRadius="md"
        borderWidth="1px"
        fontFamily="mono"
        fontSize="sm"
        overflowX="auto"
        p={4}
        tabIndex={0}
        whiteSpace="pre-wrap"
        wordBreak="break-word"
      >
        {visible(data.yaml)}
      </chakra.pre>
    </>
  );
}
