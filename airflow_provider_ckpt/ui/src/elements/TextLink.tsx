import { chakra } from "@chakra-ui/react";
import { Link } from "react-router-dom";

/** A link to a page of this app or of Airflow. */
export const TextLink = chakra(Link, {
  base: { color: "fg.info", fontWeight: "medium", overflowWrap: "anywhere", _hover: { textDecoration: "underline" } },
});
