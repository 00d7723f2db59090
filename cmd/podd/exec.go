package main

import (
	"os"

	"github.com/spf13/cobra"

	"podd/cli"
)

const aboutSessions = `POD is a pod's name, the name in its manifest, or an unambiguous prefix of a pod's
name, with or without namespace/. Without -c, the container is the one that the
annotation kubectl.kubernetes.io/default-container names, or the first.

`

func newExecCmd() *cobra.Command {
	o := &cli.ExecOptions{}
	cmd := &cobra.Command{
		Use:   "exec POD [-c CONTAINER] [-i] [-t] -- COMMAND [ARG...]",
		Short: "Run a command in a container",
		Long: `Run a command in a container, with the flags of kubectl exec.

` + aboutSessions + `Exit codes: that of the command; 1 for an error, 2 for wrong usage, 3 when podd is
not running.`,
		Example: `  podd exec web -- ls /data
  podd exec -it web -- sh
  tar c . | podd exec -i web -c proxy -- tar x -C /tmp`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || cmd.ArgsLenAtDash() != 1 {
				return cli.UsageErrorf("give a pod and, after --, a command")
			}
			return nil
		},
		ValidArgsFunction: completeOnePod(&o.StateDir, &o.Namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Pod, o.Command = args[0], args[1:]
			return o.Run(cmd.Context(), standard(cmd))
		},
	}
	bindSession(cmd, o)
	return cmd
}

func newAttachCmd() *cobra.Command {
	o := &cli.ExecOptions{}
	cmd := &cobra.Command{
		Use:   "attach POD [-c CONTAINER] [-i] [-t]",
		Short: "Attach to the process of a running container",
		Long: `Show what a container's own process writes from now on and, with -i, give it input,
with the flags of kubectl attach. Ctrl-C ends the command and not the container, unless
-t has made the terminal the container's.

` + aboutSessions + `Exit codes: that of the process if it ends meanwhile; 1 for an error, 2 for wrong
usage, 3 when podd is not running.`,
		Example: `  podd attach web
  podd attach -it shell`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeOnePod(&o.StateDir, &o.Namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Pod = args[0]
			return o.Run(cmd.Context(), standard(cmd))
		},
	}
	bindSession(cmd, o)
	return cmd
}

func standard(cmd *cobra.Command) cli.Streams {
	return cli.Streams{In: os.Stdin, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}
}

func bindSession(cmd *cobra.Command, o *cli.ExecOptions) {
	addSocket(cmd, &o.StateDir)
	addNamespace(cmd, &o.StateDir, &o.Namespace)
	f := cmd.Flags()
	f.StringVarP(&o.Container, "container", "c", "", "in this `container`")
	f.BoolVarP(&o.Stdin, "stdin", "i", false, "pass standard input on")
	f.BoolVarP(&o.TTY, "tty", "t", false, "standard input is a terminal")
	f.BoolVarP(&o.Quiet, "quiet", "q", false, "print nothing but the container's output")
}

func newCopyCmd() *cobra.Command {
	o := &cli.CopyOptions{}
	cmd := &cobra.Command{
		Use:   "cp FROM TO",
		Short: "Copy files and directories to and from containers",
		Long: `Copy a file or a directory from this machine into a container or the other way, with the
flags of kubectl cp. One of FROM and TO is a path of this machine, the other is
[NAMESPACE/]POD:PATH. As with kubectl, tar must be in the container. Out of a container
come files and directories, and no links.

A copy from a container whose session breaks off, with podd or the runtime, is resumed
where it did with --retries, which takes sh and tail in the container, too. What changes
there in the meantime may be copied in part old, in part new.

` + aboutSessions + `Exit codes: 0, 1 for an error, 2 for wrong usage, 3 when podd is not running.`,
		Example: `  podd cp ./site web:/usr/share/nginx/html
  podd cp apps/db:/var/log/db.log /tmp/db.log -c main`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.From, o.To = args[0], args[1]
			return o.Run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	addSocket(cmd, &o.StateDir)
	addNamespace(cmd, &o.StateDir, &o.Namespace)
	cmd.Flags().StringVarP(&o.Container, "container", "c", "", "to or from this `container`")
	cmd.Flags().BoolVar(&o.NoPreserve, "no-preserve", false, "do not keep owner and modes of what is copied into the container")
	cmd.Flags().IntVar(&o.Retries, "retries", 0, "resume a copy from a container that breaks off at most this often: 0 for never, a negative `number` for as often as it takes")
	return cmd
}

func newPortForwardCmd() *cobra.Command {
	o := &cli.PortForwardOptions{}
	cmd := &cobra.Command{
		Use:   "port-forward POD [LOCAL:]REMOTE...",
		Short: "Forward local ports to a pod",
		Long: `Listen on ports of this machine and pass connections on to ports of a pod, also to
those on which it listens on its own loopback only, with the flags of kubectl
port-forward, until it is interrupted or the pod ends.

REMOTE is a port or the name of a container's port; LOCAL is the same port unless it is
given, and any that is free if it is 0 or empty (":REMOTE").

POD is a pod's name, the name in its manifest, or an unambiguous prefix of a pod's
name, with or without namespace/.

Exit codes: 0 when interrupted, 1 for an error, 2 for wrong usage, 3 when podd is not
running.`,
		Example: `  podd port-forward web 8080
  podd port-forward web 8080:http :9090
  podd port-forward --address 0.0.0.0 db 5432`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: completeOnePod(&o.StateDir, &o.Namespace),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Pod, o.Ports = args[0], args[1:]
			return o.Run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addSocket(cmd, &o.StateDir)
	addNamespace(cmd, &o.StateDir, &o.Namespace)
	cmd.Flags().StringSliceVar(&o.Addresses, "address", []string{"localhost"}, "`addresses` to listen on, separated by commas: IP addresses, or localhost")
	return cmd
}
