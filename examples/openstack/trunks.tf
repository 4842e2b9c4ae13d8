# A port and a trunk for the second NIC of each worker VM. See docs/src/how-to/openstack.md.
terraform {
  required_providers {
    openstack = {
      source  = "terraform-provider-openstack/openstack"
      version = ">= 2.0.0"
    }
  }
}

variable "workers" {
  description = "Names of the worker VMs"
  type        = set(string)
  default     = ["worker1", "worker2"]
}

# Untagged frames of the trunks. No network of a sub-port can have a greater MTU.
resource "openstack_networking_network_v2" "uplink" {
  name                  = "k8s-uplink"
  port_security_enabled = false
}

# Nova wants an address of each port. Without DHCP the VM does not take it.
resource "openstack_networking_subnet_v2" "uplink" {
  name        = "k8s-uplink"
  network_id  = openstack_networking_network_v2.uplink.id
  cidr        = "198.18.0.0/24"
  enable_dhcp = false
  no_gateway  = true
}

resource "openstack_networking_port_v2" "eth1" {
  for_each   = var.workers
  name       = "${each.key}-eth1"
  network_id = openstack_networking_network_v2.uplink.id

  fixed_ip {
    subnet_id = openstack_networking_subnet_v2.uplink.id
  }
}

resource "openstack_networking_trunk_v2" "eth1" {
  for_each       = var.workers
  name           = "${each.key}-trunk"
  port_id        = openstack_networking_port_v2.eth1[each.key].id
  admin_state_up = true

  # ENO adds and removes sub-ports. Without this, Terraform would remove them.
  lifecycle {
    ignore_changes = [sub_port]
  }
}

# The second NIC of each VM: network { port = … } of openstack_compute_instance_v2.
output "ports" {
  description = "The id of each worker's port"
  value       = { for name, port in openstack_networking_port_v2.eth1 : name => port.id }
}
