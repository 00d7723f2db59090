package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"podd/cli"
	"podd/config"
)

func newConfigCmd() *cobra.Command {
	var output string
	var explain bool
	flags := &config.Flags{}
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration, or explain its fields",
		Long: `Print the configuration that podd run would use with the same flags: the file
merged with drop-ins, flags and defaults, with secrets masked. If there are errors,
they are printed and the exit code is 1.

With --explain, list every field of KubeletConfiguration and how podd treats it.`,
		Example: `  podd config --explain
  podd config --explain -o json
  podd config --config /etc/podd/config.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if explain {
				return config.Explain(cmd.OutOrStdout(), output)
			}
			c, err := flags.Load()
			if err != nil {
				return err
			}
			for _, w := range c.Warnings {
				fmt.Fprintln(os.Stderr, "warning:", w)
			}
			if output == "" {
				output = "yaml"
			}
			return cli.WriteObject(cmd.OutOrStdout(), output, c.Masked())
		},
	}
	cmd.Flags().BoolVar(&explain, "explain", false, "list every field and how podd treats it")
	flags.Bind(cmd.Flags())
	cmd.SetFlagErrorFunc(kubeletFlagError)
	addOutput(cmd, &output, "json", "yaml")
	return cmd
}

// kubeletFlagError explains kubelet flags that podd does not have, for commands
// that accept the kubelet's flags.
func kubeletFlagError(cmd *cobra.Command, err error) error {
	return &cli.ExitError{Code: cli.ExitUsage, Err: config.FlagError(cmd.Flags(), err)}
}
