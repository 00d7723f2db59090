package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/test/e2e/testnode"
)

// Controllers are upstream's controller manager and scheduler beside an APIServer: with
// them a cluster has service accounts, places pods and collects what is left over. Its
// methods are not for several goroutines at once.
type Controllers struct {
	Server *APIServer
	// Manager and Scheduler are the binaries.
	Manager, Scheduler string
	// PodCIDR is given to the one node.
	PodCIDR netip.Prefix

	programs []*program
}

// Start runs both and returns when the namespace default has what pods need: an account,
// and the certificate by which they know the apiserver. The apiserver must run.
func (c *Controllers) Start(ctx context.Context) error {
	kubeconfig := c.Server.path("controllers.kubeconfig")
	if err := c.Server.Kubeconfig(kubeconfig); err != nil {
		return err
	}
	accounts, ca := c.Server.path("accounts.pem"), c.Server.path("certs/apiserver.crt")
	c.programs = []*program{
		{name: "kube-controller-manager", binary: c.Manager, args: []string{
			"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=true",
			"--service-account-private-key-file=" + accounts, "--root-ca-file=" + ca,
			"--cluster-signing-cert-file=" + c.Server.ClientCA(), "--cluster-signing-key-file=" + c.Server.path("client-ca.key"),
			"--allocate-node-cidrs=true", "--cluster-cidr=" + c.PodCIDR.String(), "--node-cidr-mask-size=" + strconv.Itoa(c.PodCIDR.Bits()),
			"--service-cluster-ip-range=" + serviceCIDR,
		}},
		{name: "kube-scheduler", binary: c.Scheduler, args: []string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0"}},
	}
	for _, p := range c.programs {
		p.dir = c.Server.Dir
		if err := p.start(); err != nil {
			return errors.Join(err, c.Stop())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := testnode.Poll(ctx, 100*time.Millisecond, func() error { return c.ready(ctx) }); err != nil {
		return errors.Join(fmt.Errorf("wait for the controllers: %w", err), c.Stop())
	}
	return nil
}

func (c *Controllers) ready(ctx context.Context) error {
	if err := c.Check(); err != nil {
		return testnode.Stop(err)
	}
	for _, o := range []Object{
		{"kind": "ServiceAccount", "metadata": map[string]any{"name": "default"}},
		{"kind": "ConfigMap", "metadata": map[string]any{"name": "kube-root-ca.crt"}},
	} {
		if err := c.Server.Client().Get(ctx, o, &Object{}); err != nil {
			return err
		}
	}
	return nil
}

// Check returns an error if one of them has ended.
func (c *Controllers) Check() error {
	for _, p := range c.programs {
		if !p.running() {
			return fmt.Errorf("%s ended: %s", p.name, p.logTail())
		}
	}
	return nil
}

// Stop ends both and returns when they are gone.
func (c *Controllers) Stop() error {
	var errs []error
	for _, p := range c.programs {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

// NodeReady returns when a node is Ready and takes pods: the controllers have taken its
// first taint away.
func (c *Controllers) NodeReady(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return testnode.Poll(ctx, 100*time.Millisecond, func() error {
		if err := c.Check(); err != nil {
			return testnode.Stop(err)
		}
		var n v1.Node
		if err := c.Server.Client().Get(ctx, Object{"kind": "Node", "metadata": map[string]any{"name": name}}, &n); err != nil {
			return err
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type == v1.NodeReady && condition.Status != v1.ConditionTrue {
				return fmt.Errorf("the node is not ready: %s", condition.Message)
			}
		}
		if len(n.Status.Conditions) == 0 || len(n.Spec.Taints) > 0 {
			return fmt.Errorf("the node has conditions %v and taints %v", n.Status.Conditions, n.Spec.Taints)
		}
		return nil
	})
}

// program is a process with a log of its name in dir.
type program struct {
	name, binary, dir string
	args              []string

	cmd  *exec.Cmd
	done chan struct{}
}

func (p *program) log() string { return p.dir + "/" + p.name + ".log" }

func (p *program) start() error {
	log, err := os.Create(p.log())
	if err != nil {
		return fmt.Errorf("make the log of %s: %w", p.name, err)
	}
	defer func() { _ = log.Close() }()
	p.cmd = exec.Command(p.binary, p.args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.dir, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is the harness's
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.done = make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	return nil
}

func (p *program) running() bool {
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stop takes at most 10 s.
func (p *program) stop() error {
	if !p.running() {
		return nil
	}
	err := p.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		err = errors.Join(err, p.cmd.Process.Kill())
		<-p.done
	}
	return err
}

func (p *program) logTail() string {
	text, _ := os.ReadFile(p.log())
	return string(text[max(0, len(text)-3000):])
}
