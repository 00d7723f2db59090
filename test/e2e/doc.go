// Package e2e holds podd's tests on the real runtime: the real binary, the
// bundled containerd, runc and CNI plugins, real containers, as root.
//
// Each test takes a node out of a pool (testnode.Node: directories, bridge,
// subnet, cgroup root and containerd of its own), starts podd on it, and gives
// it back clean: after every test one helper asserts that nothing of it is left
// on the machine. A containerd cannot be shared by two podds at once, since each
// ends pods that its sources do not name; so as many tests run at a time as
// there are nodes, two unless PODD_E2E_NODES says otherwise.
//
// Without root the tests are skipped; without the bundle they fail and say to
// run `make runtime`.
package e2e
