// Package registry finds the plugins of a node by the sockets that appear in a directory, and
// registers each with the handler of its type, as the kubelet's pluginmanager does
// (pluginregistration/v1).
//
//	<root-dir>/plugins_registry/**/*.sock    the registrars' sockets
//
// # Promises
//
//   - A socket is one plugin for as long as its file exists. A file that replaces it is
//     another plugin: the old one is deregistered first.
//   - A registration that fails is retried, with a back-off, until its socket is removed. Both the
//     registrar and Problem say why it failed.
//   - If a plugin cannot be told that it is registered, it is not registered.
//   - Each socket is served on its own: one that hangs delays no other. Every call has a timeout.
//   - Nothing polls: the directory is watched, and created again if it was removed.
package registry
