// Command podd is a Kubernetes node agent: it runs the pods of a directory, a
// URL or (later) an apiserver on a CRI runtime.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"podd/cli"
	"podd/podconfig/manifest"
)

func main() {
	os.Exit(execute(os.Args))
}

// execute runs the command line and returns the exit code.
func execute(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal shuts podd down in an orderly way. A second one kills it.
	context.AfterFunc(ctx, stop)
	name, rest := filepath.Base(args[0]), args[1:]
	if name == "kubelet" {
		// kubeadm runs kubelet --version and parses this form.
		if len(rest) == 1 && (rest[0] == "--version" || rest[0] == "--version=true") {
			fmt.Printf("Kubernetes %s\n", thisVersion().Kubernetes)
			return 0
		}
		// Static pods that run on a kubelet also run here, unless a flag says otherwise.
		rest = append([]string{"run", "--" + flagValidation + "=" + string(manifest.Warn)}, rest...)
	}
	root := newRootCmd(name == "kubelet")
	root.SetArgs(rest)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := 1
	if e, ok := errors.AsType[*cli.ExitError](err); ok {
		code = e.Code
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(os.Stderr, "%s: %s\n", cmd.CommandPath(), strings.ReplaceAll(text, "\n", "\n  "))
	}
	return code
}

func newRootCmd(asKubelet bool) *cobra.Command {
	root := &cobra.Command{
		Use:   "podd",
		Short: "Run Kubernetes pods on this machine",
		Long: `podd is a Kubernetes node agent. Put Pod manifests into a directory and they
run, on a real container runtime, without a control plane.

Invoked under the name kubelet it behaves as podd run, and warns about unknown
fields in manifests, and about flags of the kubelet that podd does not have, instead
of rejecting them.`,
		Example: `  podd run                                 # run the pods of /etc/podd/manifests
  podd validate /etc/podd/manifests/*.yaml # check manifests without running them
  podd ps                                  # what runs, and what is wrong with manifests
  podd describe web                        # everything about a pod
  podd inspect web                         # what the container runtime was really given
  podd logs -f web                         # what a pod writes
  podd exec -it web -- sh                  # a shell in a pod
  podd events web                          # what happened to a pod`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
		Args:              cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cli.UsageErrorf("%w; see %s --help", err, cmd.CommandPath())
	})
	root.AddGroup(
		&cobra.Group{ID: "daemon", Title: "Daemons:"},
		&cobra.Group{ID: "look", Title: "Inspecting this node:"},
		&cobra.Group{ID: "act", Title: "Acting on this node:"},
		&cobra.Group{ID: "check", Title: "Checking without a daemon:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("daemon", newRunCmd(asKubelet), newRuntimeCmd())
	add("look", newPsCmd(), newGetCmd(), newDescribeCmd(), newInspectCmd(), newEventsCmd(), newLogsCmd(), newTopCmd(), newImagesCmd())
	add("act", newExecCmd(), newAttachCmd(), newCopyCmd(), newPortForwardCmd(), newRestartCmd(), newRetryCmd(), newRemoveImageCmd(), newPruneCmd())
	add("check", newValidateCmd(), newConfigCmd(), newVersionCmd())
	checkUsage(root)
	return root
}

// checkUsage gives wrong arguments the exit code of wrong flags.
func checkUsage(cmd *cobra.Command) {
	if args := cmd.Args; args != nil {
		cmd.Args = func(cmd *cobra.Command, given []string) error {
			if err := args(cmd, given); err != nil {
				return cli.UsageErrorf("%w; see %s --help", err, cmd.CommandPath())
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		checkUsage(c)
	}
}
