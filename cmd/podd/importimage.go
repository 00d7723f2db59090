package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"podd/bundle"
	"podd/images"
)

// newImportImageCmd is the process that imports archives for the daemon.
func newImportImageCmd() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:    "import-image FILE...",
		Short:  "Import image archives into the container runtime",
		Hidden: true, // the image directory is the way; see images.Child
		Args:   cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			c, err := images.DialContainerd(socket)
			if err != nil {
				return err
			}
			defer c.Close()
			failed := 0
			for _, file := range files {
				refs, err := c.Import(cmd.Context(), file)
				if err != nil {
					failed++
				}
				if err := json.NewEncoder(os.Stdout).Encode(images.ResultOf(file, refs, err)); err != nil {
					return err
				}
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d archives were not imported", failed, len(files))
			}
			return nil
		},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.Flags().StringVar(&socket, "socket", bundle.Socket(defaultStateDir), "containerd's socket")
	return cmd
}
