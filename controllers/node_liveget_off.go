//go:build fault_noliveget

package controllers

const checksGroupLive = false
