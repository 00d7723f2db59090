// Package registry finds the plugins of a node by the sockets that appear in a directory, and
// registers each with the handler of its type, as the kubelet's pluginmanager does
// (pluginregistration/v1).
//
//	<root-dir>/plugins_registry/**/*.sock    the registrars' sockets
//
// # Promises
//
//   - A socket is one plugin for as long as its file exists. A file that is replaced is another
//     plugin: the old one is deregistered first.
//   - A registration that fails is retried, with a back-off, until its socket is removed. Both the
//     registrar and Problem say why it failed.
//   - A plugin that cannot be told that it is registered is not registered.
//   - Each socket is served on its own: one that hangs delays no other. Every call has a timeout.
//   - Nothing polls: the directory is watched, and made anew where it was removed.
package registry
