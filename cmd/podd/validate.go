package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"podd/cli"
)

func newValidateCmd() *cobra.Command {
	o := &cli.ValidateOptions{}
	cmd := &cobra.Command{
		Use:   "validate FILE|DIRECTORY|-...",
		Short: "Check manifests without running them",
		Long: `Check manifests as podd run would: syntax, unknown fields, the apiserver's own
validation, the rules for pods without an apiserver, fields that podd does not
honour yet, and names that two of the given pods share. It needs neither a daemon
nor a runtime. In a directory, the files that podd run would read are checked:
*.yaml, *.yml, *.json and *.manifest; others are listed as left out. "-" is
standard input.

Each problem is one line, "file:line: field: what is wrong", and below it,
indented, what to do. A warning is about a pod that runs as written, which is
probably not what was meant, or about a document that none of the pods needs.

Exit codes: 0, also with warnings, 1 if there is any problem, 2 for wrong usage.`,
		Example: `  podd validate /etc/podd/manifests
  podd validate web.yaml db.yaml
  kubectl get pod web -o yaml | podd validate -
  podd validate -o json web.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageErrorf("give the manifests to check: files, directories, or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			limitHeap()
			// No cleanup is needed: a signal ends the command at once, whether it waits for
			// input or processes it.
			signal.Reset(os.Interrupt, syscall.SIGTERM)
			o.Paths = args
			return o.Run(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&o.Node, "node-name", "", "`name` of the node that the pods are for (default: this machine's)")
	bindValidation(cmd.Flags(), &o.Validation, "what happens to unknown and duplicate fields: a problem, a warning, or nothing")
	cmd.Flags().StringVar(&o.FeatureGates, "feature-gates", "", "feature `gates` of the node, as in podd run: Name=true or Name=false, separated by commas")
	addOutput(cmd, &o.Output, "json", "yaml")
	return cmd
}
