package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

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

	programs []*Program
}

// Start runs both and returns when the namespace default has what pods need: an account,
// and the certificate by which they know the apiserver. The apiserver must run.
func (c *Controllers) Start(ctx context.Context) error {
	kubeconfig := c.Server.path("controllers.kubeconfig")
	if err := c.Server.Kubeconfig(kubeconfig); err != nil {
		return err
	}
	// What a test measures is a node: their own limits would keep fifty pods waiting.
	unlimited := []string{"--kube-api-qps=500", "--kube-api-burst=1000"}
	accounts, ca := c.Server.path("accounts.pem"), c.Server.path("certs/apiserver.crt")
	c.programs = []*Program{
		{Name: "kube-controller-manager", Binary: c.Manager, Args: append([]string{
			"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=true",
			"--service-account-private-key-file=" + accounts, "--root-ca-file=" + ca,
			"--cluster-signing-cert-file=" + c.Server.ClientCA(), "--cluster-signing-key-file=" + c.Server.path("client-ca.key"),
			"--allocate-node-cidrs=true", "--cluster-cidr=" + c.PodCIDR.String(), "--node-cidr-mask-size=" + strconv.Itoa(c.PodCIDR.Bits()),
			"--service-cluster-ip-range=" + serviceCIDR,
		}, unlimited...)},
		{Name: "kube-scheduler", Binary: c.Scheduler, Args: append([]string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0"}, unlimited...)},
	}
	for _, p := range c.programs {
		p.Dir = c.Server.Dir
		if err := p.Start(); err != nil {
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
		if err := p.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends both and returns when they are gone.
func (c *Controllers) Stop() error {
	var errs []error
	for _, p := range c.programs {
		errs = append(errs, p.Stop())
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
