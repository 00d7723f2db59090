// Command dradriver is a driver of dynamic resources for podd's tests, made with upstream's
// helper library for such drivers (kubeletplugin). It is a module of its own, since that needs
// the typed client, which podd's has not.
//
// Each device that it prepares sets the variable DRA_DEVICE by a CDI specification of its own.
// A line of the file of calls says what was called, and what the apiserver showed of the
// namespace's pods at that moment.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// driver implements kubeletplugin.DRAPlugin.
type driver struct {
	name, node, cdi, calls string
	client                 kubernetes.Interface
}

func main() {
	d := &driver{}
	kubeconfig, registrar, data := "", "", ""
	for name, value := range map[string]*string{
		"driver": &d.name, "node": &d.node, "cdi": &d.cdi, "calls": &d.calls,
		"kubeconfig": &kubeconfig, "registrar": &registrar, "data": &data,
	} {
		flag.StringVar(value, name, "", "")
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := d.run(ctx, kubeconfig, registrar, data); err != nil {
		log.Fatal(err)
	}
}

func (d *driver) run(ctx context.Context, kubeconfig, registrar, data string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	if d.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(data, 0o750), os.MkdirAll(d.cdi, 0o755)); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(d.name), kubeletplugin.NodeName(d.node), kubeletplugin.KubeClient(d.client),
		kubeletplugin.RegistrarDirectoryPath(registrar), kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return err
	}
	defer helper.Stop()
	err = helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		d.node: {Slices: []resourceslice.Slice{{Devices: []resourcev1.Device{{Name: "gpu0"}, {Name: "gpu1"}}}}},
	}})
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// spec is the path of a claim's CDI specification.
func (d *driver) spec(uid types.UID) string {
	return filepath.Join(d.cdi, d.name+"-"+string(uid)+".json")
}

// PrepareResourceClaims writes a specification for each claim.
func (d *driver) PrepareResourceClaims(ctx context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		d.note(ctx, "prepare", c.Name)
		var all []string
		result := kubeletplugin.PrepareResult{}
		for _, r := range c.Status.Allocation.Devices.Results {
			name := string(c.UID) + "-" + r.Device
			all = append(all, fmt.Sprintf(`{"name": %q, "containerEdits": {"env": ["DRA_DEVICE=%s"]}}`, name, r.Device))
			result.Devices = append(result.Devices, kubeletplugin.Device{
				Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, CDIDeviceIDs: []string{d.name + "/device=" + name},
			})
		}
		result.Err = os.WriteFile(d.spec(c.UID), []byte(fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": %q, "devices": [%s]}`, d.name+"/device", strings.Join(all, ", "))), 0o644)
		results[c.UID] = result
	}
	return results, nil
}

// UnprepareResourceClaims removes them.
func (d *driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, c := range claims {
		d.note(ctx, "unprepare", c.Name)
		err := os.Remove(d.spec(c.UID))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		results[c.UID] = err
	}
	return results, nil
}

// WatchHealthStatus: this driver knows nothing about its devices' health.
func (d *driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// HandleError ends a driver that cannot publish its devices.
func (d *driver) HandleError(_ context.Context, err error, msg string) {
	log.Printf("%s: %v", msg, err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		os.Exit(1)
	}
}

// note appends a line to the file of calls.
func (d *driver) note(ctx context.Context, call, claim string) {
	line := call + " " + claim
	pods, err := d.client.CoreV1().Pods(v1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", d.node).String()})
	if err != nil {
		line += " " + err.Error()
	} else {
		for _, p := range pods.Items {
			line += " " + p.Name + "=" + string(p.Status.Phase)
		}
	}
	f, err := os.OpenFile(d.calls, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintln(f, line)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		log.Fatal(err)
	}
}
