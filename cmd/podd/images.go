package main

import (
	"github.com/spf13/cobra"

	"podd/cli"
)

const imagesExitCodes = `
Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`

func newImagesCmd() *cobra.Command {
	o := &cli.ImagesOptions{}
	cmd := &cobra.Command{
		Use:   "images",
		Short: "List the images of the container runtime",
		Long: `List the images of the container runtime, the largest first: which pods use each, its
size, and when podd last saw a container of it since its start. -o wide says why an
image stays.
` + imagesExitCodes,
		Example: `  podd images
  podd images -o wide`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.List(cmd.Context(), cmd.OutOrStdout()) },
	}
	addSocket(cmd, &o.StateDir)
	addOutput(cmd, &o.Output, "wide", "json", "yaml")
	return cmd
}

func newRemoveImageCmd() *cobra.Command {
	o := &cli.ImagesOptions{}
	cmd := &cobra.Command{
		Use:   "rmi IMAGE...",
		Short: "Remove images that nobody uses",
		Long: `Remove images, by name or by ID (six digits of it at least), under all their names. An
image stays if a container has it, a manifest names it, the image directory has its
archive, or it is pinned.
` + imagesExitCodes,
		Example: `  podd rmi registry.example/app:1.2
  podd rmi 0f1e2d3c4b5a`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.Remove(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	addSocket(cmd, &o.StateDir)
	return cmd
}

func newPruneCmd() *cobra.Command {
	o := &cli.ImagesOptions{}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove all images that nobody uses",
		Long: `Remove all images that nobody uses, by the rules of the garbage collection: not those
of containers, manifests and the image directory, not pinned ones, and none that is
younger than imageMinimumGCAge (two minutes).
` + imagesExitCodes,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.Prune(cmd.Context(), cmd.OutOrStdout()) },
	}
	addSocket(cmd, &o.StateDir)
	return cmd
}
