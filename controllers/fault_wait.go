//go:build fault_nofinalizerwait

package controllers

const awaitsLeaving = false
