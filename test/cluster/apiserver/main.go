// Command apiserver is upstream's kube-apiserver with an etcd of its own in the same
// process: the API of a cluster that lasts as long as a test. It is a module of its
// own, so that it is linked from exactly the versions that upstream's release names.
//
// What it stores is in the directory etcd below the working directory, where the
// sockets of etcd are too: it listens on no port but the one of --secure-port. All
// arguments are kube-apiserver's; --etcd-servers is added.
//
// "apiserver etcd" is that etcd alone, until it is told to end, and an apiserver whose
// arguments have --etcd-servers starts none: then the one can fail without the other.
package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // what the binary of the release measures
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// Sockets in the working directory: etcd takes a unix URL's host and port for the
// file's name.
const (
	clients = "unix://localhost:2379"
	peers   = "unix://localhost:2380"
)

func main() {
	args := os.Args[1:]
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--etcd-servers=") }) {
		os.Exit(serve(args))
	}
	etcd, err := store("etcd")
	if err != nil {
		fmt.Fprintln(os.Stderr, "start etcd:", err)
		os.Exit(1)
	}
	if slices.Equal(args, []string{"etcd"}) {
		told := make(chan os.Signal, 1)
		signal.Notify(told, os.Interrupt, syscall.SIGTERM)
		<-told
		etcd.Close()
		return
	}
	code := serve(append([]string{"--etcd-servers=" + clients}, args...))
	etcd.Close()
	os.Exit(code)
}

func serve(args []string) int {
	command := app.NewAPIServerCommand()
	command.SetArgs(args)
	return cli.Run(command)
}

// store starts an etcd that syncs nothing to the disk and returns when it answers.
func store(dir string) (*embed.Etcd, error) {
	config := embed.NewConfig()
	config.Dir = dir
	config.UnsafeNoFsync = true
	config.LogLevel = "error"
	client, err := url.Parse(clients)
	if err != nil {
		return nil, err
	}
	peer, err := url.Parse(peers)
	if err != nil {
		return nil, err
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		return nil, err
	}
}
